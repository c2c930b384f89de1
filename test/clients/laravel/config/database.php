<?php

return [
    'default' => 'pgsql',
    'connections' => [
        'pgsql' => [
            'driver' => 'pgsql',
            'host' => getenv('PGHOST'),
            'port' => getenv('PGPORT'),
            'database' => getenv('PGDATABASE'),
            'username' => getenv('PGUSER'),
            'charset' => 'utf8',
            'prefix' => '',
            'schema' => 'public',
        ],
    ],
    'migrations' => 'migrations',
];

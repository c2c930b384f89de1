<?php

return [
    'driver' => 'database',
    'lifetime' => getenv('LIFETIME') / 60, // minutes
    'expire_on_close' => false,
    'encrypt' => false,
    'connection' => null,
    'table' => 'sessions',
    'lottery' => [0, 100], // never by itself: whatever goes here, the sweeper has removed
    'cookie' => 'laravel_session',
    'path' => '/',
    'domain' => null,
    'secure' => false,
    'http_only' => true,
    'same_site' => 'lax',
];

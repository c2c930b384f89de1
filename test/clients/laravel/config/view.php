<?php

return ['paths' => [], 'compiled' => __DIR__.'/../storage/framework/views'];

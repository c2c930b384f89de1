<?php

return ['driver' => 'bcrypt'];

<?php
// Laravel with the database session driver.
//   php laravel/app.php session:table                       and other commands of artisan
//   LIFETIME=seconds php -S 127.0.0.1:PORT laravel/app.php  the application

require 'Illuminate/autoload.php';

use Illuminate\Contracts\Console\Kernel as ConsoleKernel;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Http\Kernel as HttpKernel;
use Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse;
use Illuminate\Cookie\Middleware\EncryptCookies;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Illuminate\Session\Middleware\StartSession;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Facade;
use Illuminate\Support\Facades\Route;

class Http extends Illuminate\Foundation\Http\Kernel
{
    protected $middlewareGroups = ['web' => [EncryptCookies::class, AddQueuedCookiesToResponse::class, StartSession::class]];
}

foreach (['bootstrap/cache', 'database/migrations', 'storage/framework/views', 'storage/logs'] as $folder) {
    @mkdir(__DIR__.'/'.$folder, 0755, true);
}
$app = new Application(__DIR__);
$app->singleton(HttpKernel::class, Http::class);
$app->singleton(ConsoleKernel::class, Illuminate\Foundation\Console\Kernel::class);
$app->singleton(ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);

$app->booted(function () {
    Route::middleware('web')->group(function () {
        Route::post('login', function (Request $request) {
            $request->session()->regenerate(true);
            $request->session()->put('user', $request->query('user'));

            return response()->json(['id' => $request->session()->getId()]);
        });
        Route::get('me', function (Request $request) {
            $user = $request->session()->get('user');

            return response()->json(['user' => $user], $user ? 200 : 401);
        });
        Route::post('logout', function (Request $request) {
            $request->session()->invalidate();

            return response()->json([]);
        });
    });
    // The rule by which DatabaseSessionHandler's read finds a session expired: "last_activity < now - lifetime".
    Route::get('admin/sessions', function () {
        $lifetime = 60 * config('session.lifetime');

        return response()->json(DB::table('sessions')->get()->map(fn ($row) => [
            'id' => $row->id, 'key' => $row->id, 'dies' => $row->last_activity + $lifetime + 1,
            'expired' => $row->last_activity < now()->getTimestamp() - $lifetime,
        ]));
    });
});

if (PHP_SAPI === 'cli') {
    exit($app->make(ConsoleKernel::class)->handle(
        new Symfony\Component\Console\Input\ArgvInput(), new Symfony\Component\Console\Output\ConsoleOutput()));
}
$kernel = $app->make(HttpKernel::class);
$request = Request::capture();
$response = $kernel->handle($request)->send();
$kernel->terminate($request, $response);

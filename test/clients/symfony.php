<?php
// Symfony's HttpFoundation with PdoSessionHandler.
//   php symfony.php table                             the session table, by the handler's createTable()
//   LIFETIME=seconds php -S 127.0.0.1:PORT symfony.php    the application

require 'Symfony/Component/HttpFoundation/autoload.php';

use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Session\Session;
use Symfony\Component\HttpFoundation\Session\Storage\Handler\PdoSessionHandler;
use Symfony\Component\HttpFoundation\Session\Storage\NativeSessionStorage;

$dsn = 'pgsql:dbname='.getenv('PGDATABASE'); // the rest is in PGHOST and the like
$handler = new PdoSessionHandler($dsn);

if (PHP_SAPI === 'cli') {
    $handler->createTable();
    exit;
}

// The rule by which the handler's read finds a session expired: "expiry < time()", where what looks like a
// lifetime is one, as versions before 4.4 wrote it.
function sessions(string $dsn): array
{
    $sql = 'SELECT sess_id AS id, sess_id AS key, CASE WHEN sess_lifetime <= 315576000 THEN sess_time ELSE 0 END + sess_lifetime AS expiry FROM sessions';
    $now = time();

    return array_map(
        fn ($row) => ['id' => $row['id'], 'key' => $row['key'], 'dies' => $row['expiry'] + 1, 'expired' => $row['expiry'] < $now],
        (new PDO($dsn))->query($sql)->fetchAll(PDO::FETCH_ASSOC)
    );
}

$request = Request::createFromGlobals();
$path = $request->getPathInfo();
if ($path === '/admin/sessions') {
    (new JsonResponse(sessions($dsn)))->send();
    exit;
}
// It does not collect garbage: whatever goes here, the sweeper has removed.
$session = new Session(new NativeSessionStorage(['gc_maxlifetime' => getenv('LIFETIME'), 'gc_probability' => 0], $handler));
$session->start();
$status = 200;
$answer = [];
if ($path === '/login') {
    $session->migrate(true);
    $session->set('user', $request->query->get('user'));
    $answer = ['id' => $session->getId()];
} elseif ($path === '/logout') {
    $session->invalidate();
} else {
    $answer = ['user' => $session->get('user')];
    $status = $session->has('user') ? 200 : 401;
}
$session->save();
(new JsonResponse($answer, $status))->send();

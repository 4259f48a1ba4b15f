// Preloaded into the processes that `npm run sample` and `npm run demo` start: a parent that was killed cannot stop its children, so they notice.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
process.channel?.unref();

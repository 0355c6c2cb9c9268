package paths

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// views are the root directories of threads that have a mount namespace other than boxd's, by
// thread id. only is false as long as there are none, which is so in a box of one session.
var (
	views sync.Map
	only  atomic.Bool
)

// view is the "/" that one thread sees.
type view struct {
	slash int
	below *os.Root
}

// Enter makes the functions of this package use the present "/" of the calling thread whenever
// this thread calls them. The thread must be locked; Leave undoes it.
func Enter() error {
	fd, err := unix.Open("/", Way|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot("/")
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	only.Store(true)
	views.Store(unix.Gettid(), &view{fd, root})
	return nil
}

// Leave forgets what Enter has stored for the calling thread, if anything.
func Leave() {
	if !only.Load() {
		return
	}
	if v, ok := views.LoadAndDelete(unix.Gettid()); ok {
		_ = unix.Close(v.(*view).slash)
		_ = v.(*view).below.Close()
	}
}

// seen returns the calling thread's own "/", if it has one.
func seen() *view {
	if !only.Load() {
		return nil
	}
	v, ok := views.Load(unix.Gettid())
	if !ok {
		return nil
	}
	return v.(*view)
}

package paths

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// views maps the ids of threads that have called Enter to their views. only is false until the first
// thread calls Enter, so always in a box of a single session.
var (
	views sync.Map
	only  atomic.Bool
)

// view is the "/" that one thread sees.
type view struct {
	slash int
	below *os.Root
}

// Enter makes the functions of this package use the present "/" of the calling thread when this
// thread calls them, until it calls Leave. The goroutine must be locked to its thread.
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

// Leave ends the effect of Enter for the calling thread. Without an Enter before, it does nothing.
func Leave() {
	if !only.Load() {
		return
	}
	if v, ok := views.LoadAndDelete(unix.Gettid()); ok {
		_ = unix.Close(v.(*view).slash)
		_ = v.(*view).below.Close()
	}
}

// seen returns the view that Enter has stored for the calling thread, or nil.
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

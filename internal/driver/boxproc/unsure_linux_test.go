package boxproc_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// TestABoxThatCannotBeAskedIsNotGone: a server without free file descriptors cannot find out whether a box runs. It says
// so, and removes nothing.
func TestABoxThatCannotBeAskedIsNotGone(t *testing.T) {
	d := open(t)
	_, r := start(t, d)
	removed := false
	boxes := boxproc.Boxes{Dir: d, Clear: func(context.Context, holdfast.BoxID) error { removed = true; return nil }}
	checks := map[string]func() error{
		"start time": func() error { _, err := boxproc.StartTime(r.PID); return err },
		"alive":      func() error { _, err := d.Alive(r); return err },
		"foreign":    func() error { _, err := d.Foreign(r); return err },
		"find":       func() error { _, err := d.Find(r); return err },
		"read":       func() error { _, err := d.Read(box); return err },
		"running":    func() error { _, err := boxes.Running(box); return err },
		"dial":       func() error { _, err := d.Dial(t.Context(), box); return err },
		"connect":    func() error { _, err := boxes.Connect(t.Context(), box); return err },
		"info":       func() error { _, err := boxes.Info(r); return err },
		"found":      func() error { _, _, err := boxes.Found(t.Context(), box); return err },
	}
	got := map[string]error{}
	without(t, func() {
		for name, check := range checks {
			got[name] = check()
		}
	})
	for name := range checks {
		if !holdfast.IsKind(got[name], holdfast.KindBusy) {
			t.Errorf("%s: %v", name, got[name])
		}
	}
	if removed {
		t.Error("the box was removed")
	}
	if _, ok, err := boxes.Found(t.Context(), box); !ok || err != nil {
		t.Errorf("the box is not found afterwards: %v", err)
	}
}

// without calls fn while the process can open no more files.
func without(t *testing.T, fn func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	fn()
}

// TestABoxWithAFullQueueIsNotGone: boxd's socket takes no more connections, because boxd has not accepted those before.
func TestABoxWithAFullQueueIsNotGone(t *testing.T) {
	d := open(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	addr := &unix.SockaddrUnix{Name: filepath.Join(d.Path(), boxproc.Key(box)+".sock")}
	if err := unix.Bind(fd, addr); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(c)
		if err := unix.Connect(c, addr); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := d.Dial(ctx, box); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("dial: %v", err)
	}
}

package db

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	lockPoll     = 10 * time.Millisecond
	lockPatience = 5 * time.Second
)

// lockDir takes the directory's lock for as long as the file stays open. The
// kernel gives it free when the process ends, however it ends; a process that is
// only stopped keeps it.
//
// A server that died while it started a process may leave the lock, for a
// moment, to a child that has not reached its program yet: then, and only then,
// it is waited for.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, OpenError(path, err)
	}
	for waited := time.Duration(0); ; waited += lockPoll {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		pid := holder(f)
		if pid <= 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || waited >= lockPatience || !pause(ctx, lockPoll) {
			f.Close()
			return nil, heldBy(dir, pid)
		}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, OpenError(path, err)
	}
	return f, nil
}

// holder is the process that last took the lock; 0 when the file does not say.
func holder(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func heldBy(dir string, pid int) error {
	if pid <= 0 {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "%s is in use by another process", dir).
			WithHint("stop the other server, or give this one another --data directory")
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "%s is in use by process %d", dir, pid).
		WithHint("stop it (kill %d), or give this server another --data directory", pid)
}

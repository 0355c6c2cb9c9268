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
	"github.com/holdfast-run/holdfast/internal/clock"
)

const (
	lockPoll     = 10 * time.Millisecond
	lockPatience = 5 * time.Second
)

// lockDir takes the directory's lock, which is held for as long as the returned file stays
// open. The kernel releases it when the process ends, however it ends; a process that is
// only suspended keeps it.
//
// If a server died while it started a process, a child that has not yet executed its program may
// hold the lock for a moment. lockDir waits for the lock only if the process that took it is
// dead.
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
		if pid <= 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || waited >= lockPatience || clock.Pause(ctx, lockPoll) != nil {
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

// holder returns the id of the process that last took the lock, or 0 if the file has none.
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

func heldBy(dir string, pid int) error {
	if pid <= 0 {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "the data directory %s is in use by another process", dir).
			WithHint("stop the other server, or give this one another --data directory")
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "the data directory %s is in use by process %d", dir, pid).
		WithHint("stop that process (kill %d), or give this server another --data directory", pid)
}

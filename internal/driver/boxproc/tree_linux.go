package boxproc

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// pace is the pause between two rounds of killing, and between two tries of Dial.
const pace = 2 * time.Millisecond

// Bearers returns the processes, except the server itself, whose environment contains the entry
// NAME=value. It sees only processes whose environment the server may read. So it finds what a box without a pid
// namespace left behind, except processes that have replaced their environment.
func Bearers(entry string) ([]int, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc", "cannot list processes: %w", err).WithHint("mount /proc")
	}
	var out []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() || !bears(pid, entry) {
			continue
		}
		if _, err := StartTime(pid); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}

func bears(pid int, entry string) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+entry+"\x00"))
}

// KillBearers kills every process whose environment contains the entry (see Bearers), again and again,
// until none is left or ctx ends, because these processes may start others before they die.
func KillBearers(ctx context.Context, entry string) error {
	return killRounds(ctx, func() ([]int, error) { return Bearers(entry) }, func(pid int) bool { return bears(pid, entry) })
}

// KillTree stops the process, so that it starts nothing more, kills all of its descendants, and
// then the process itself. The process must be a subreaper: all its descendants, orphans too, are
// below it.
func (p *Proc) KillTree(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := killRounds(ctx, func() ([]int, error) {
		all, err := processes()
		if err != nil {
			return nil, err
		}
		if me, ok := all[p.pid]; ok && me.state != "T" && me.state != "Z" && me.state != "X" {
			// The process has not stopped yet: look again.
			return append(below(all, p.pid), -1), nil
		}
		return below(all, p.pid), nil
	}, func(pid int) bool {
		all, err := processes()
		return err == nil && descends(all, pid, p.pid)
	})
	if err != nil {
		return err
	}
	return p.Kill(ctx)
}

// killRounds kills the processes that list returns, again and again until it returns none. Before each
// kill, with the pidfd open, still must return true for the pid, because the pid could have been reused.
func killRounds(ctx context.Context, list func() ([]int, error), still func(pid int) bool) error {
	for {
		pids, err := list()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if pid > 0 {
				killIf(pid, still)
			}
		}
		if clock.Pause(ctx, pace) != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.kill", "%d processes of the box could not be killed, among them pid %d: %w", len(pids), pids[0], ctx.Err())
		}
	}
}

func killIf(pid int, still func(int) bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if still(pid) {
		// Ignore an error: usually the process has ended, and otherwise the next round finds it again.
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

type stat struct {
	ppid  int
	state string
}

// processes returns the state and the parent of every process.
func processes() (map[int]stat, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc", "cannot list processes: %w", err).WithHint("mount /proc")
	}
	out := make(map[int]stat, len(dirs))
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", d.Name(), "stat"))
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 2 {
			continue
		}
		ppid, err := strconv.Atoi(f[1])
		if err == nil {
			out[pid] = stat{ppid: ppid, state: f[0]}
		}
	}
	return out, nil
}

// below returns the living descendants of a process.
func below(all map[int]stat, root int) []int {
	var out []int
	for pid, s := range all {
		if s.state != "Z" && s.state != "X" && descends(all, pid, root) {
			out = append(out, pid)
		}
	}
	return out
}

func descends(all map[int]stat, pid, root int) bool {
	// A chain of parents is never longer than the number of processes, whatever changed while the
	// list was read.
	for range len(all) {
		s, ok := all[pid]
		if !ok || s.ppid == 0 {
			return false
		}
		if s.ppid == root {
			return true
		}
		pid = s.ppid
	}
	return false
}

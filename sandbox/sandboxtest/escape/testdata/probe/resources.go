package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// resourceVerbs take what a box may have only so much of. Each takes a bounded
// amount: run without a limit, they harm nobody.
func resourceVerbs() map[string]verb {
	return map[string]verb{
		"forkbomb": forkbomb,
		"forks":    forks,
		"hog":      hog,
		"gulp":     gulp,
		"fill":     fill,
		"inodes":   inodes,
		"spew":     spew,
		"orphans":  orphans,
		"files":    files,
		"keep":     keep,
		"ptys":     ptys,
		"unlinked": unlinked,
	}
}

// forkbomb has n processes at once, and ends them.
func forkbomb(a []string) (string, error) {
	n := atoi(a[0])
	var all []*exec.Cmd
	defer func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range n {
		c := exec.Command("/proc/self/exe", "forks", "wait")
		if err := c.Start(); err != nil {
			return fmt.Sprintf("within %d", n), err
		}
		all = append(all, c)
	}
	return fmt.Sprintf("%d processes", n), nil
}

// forks starts processes that stay, until none can be started.
func forks(a []string) (string, error) {
	if len(a) > 0 {
		time.Sleep(time.Hour)
	}
	for i := 0; ; i++ {
		if err := exec.Command("/bin/sleep", "3600").Start(); err != nil {
			fmt.Println("full after", i, outcome(err))
			os.Exit(0)
		}
	}
}

// hog takes memory and keeps it.
func hog(a []string) (string, error) {
	take(a[0])
	time.Sleep(time.Hour)
	return "", nil
}

// gulp takes memory and gives it back.
func gulp(a []string) (string, error) { return a[0] + " bytes", take(a[0]) }

func take(size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	return nil
}

// fill writes a file of that many bytes, with a pause of so many milliseconds
// after each MiB; it stays.
func fill(a []string) (string, error) {
	pause := time.Duration(0)
	if len(a) > 2 {
		pause = time.Duration(atoi(a[2])) * time.Millisecond
	}
	f, err := os.Create(a[0])
	if err != nil {
		return "", err
	}
	buf := make([]byte, 1<<20)
	for left := atoi(a[1]); left > 0; left -= len(buf) {
		if _, err := f.Write(buf[:min(left, len(buf))]); err != nil {
			return "", errors.Join(err, f.Close())
		}
		time.Sleep(pause)
	}
	return a[1] + " bytes", f.Close()
}

// inodes makes empty files; they stay.
func inodes(a []string) (string, error) {
	if err := os.MkdirAll(a[0], 0o755); err != nil {
		return "", err
	}
	for i := range atoi(a[1]) {
		if err := closing(os.Create(filepath.Join(a[0], strconv.Itoa(i)))); err != nil {
			return "", err
		}
	}
	return a[1] + " files", nil
}

// spew prints that many bytes.
func spew(a []string) (string, error) {
	_, err := io.CopyN(os.Stdout, endless{}, int64(atoi(a[0])))
	return "", err
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// orphans leaves ended processes to the first process of the box, and counts
// those that nobody buried. As that process itself it buries none.
func orphans(a []string) (string, error) {
	n := atoi(a[0])
	if os.Getpid() == 1 {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return "", err
		}
	}
	for range n {
		if err := orphan(); err != nil {
			return "", err
		}
	}
	var left int
	for range 200 {
		if left = zombies(); left == 0 {
			return "", errors.New("none left")
		}
		if os.Getpid() == 1 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Sprintf("%d left", left), nil
}

// orphan forks a child that forks another; both end, the second one unburied.
func orphan() error {
	pid, err := sysr(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0)
	if err != nil {
		return err
	}
	if pid == 0 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		for {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err = unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// zombies counts the ended and unburied processes that can be seen.
func zombies() int {
	n := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		if b, err := os.ReadFile(s); err == nil && strings.Contains(string(b), ") Z ") {
			n++
		}
	}
	return n
}

// files opens that many at once.
func files(a []string) (string, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return "", err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lim.Max, Max: lim.Max}); err != nil {
		return "", err
	}
	n := atoi(a[0])
	for range n {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			return fmt.Sprintf("within %d", n), err
		}
	}
	return fmt.Sprintf("%d files", n), nil
}

// keep opens that many, and keeps them for a minute.
func keep(a []string) (string, error) {
	s, err := files(a)
	fmt.Println("taken", s, err)
	time.Sleep(time.Minute)
	return s, err
}

// ptys has that many terminals at once. How many there are is one number for
// the whole machine.
func ptys(a []string) (string, error) {
	n := atoi(a[0])
	for range n {
		if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err != nil {
			return fmt.Sprintf("within %d", n), err
		}
	}
	return fmt.Sprintf("%d terminals", n), nil
}

// unlinked takes room in files without a name, one of each 8 MiB, and keeps it for
// so many milliseconds in one of four ways: open, mapped with one page of each,
// open in a thread with a table of its own, or sent to a socket that nobody reads.
func unlinked(a []string) (string, error) {
	way, dir, left := a[0], a[1], atoi(a[2])
	pause, stay := time.Duration(atoi(a[3]))*time.Millisecond, time.Duration(atoi(a[4]))*time.Millisecond
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return "", err
	}
	if way == "thread" {
		time.Sleep(time.Millisecond) // the runtime's own descriptors are open in all threads before
		runtime.LockOSThread()
		if err := unix.CloseRange(1<<20, 1<<20, unix.CLOSE_RANGE_UNSHARE); err != nil {
			return "", err
		}
	}
	buf := make([]byte, 1<<20)
	for left > 0 {
		name := filepath.Join(dir, "ghost") // a life that ended just now may have left one
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC, 0o600)
		if err != nil {
			return "", err
		}
		if err := unix.Unlink(name); err != nil {
			return "", err
		}
		for one := 8 << 20; one > 0 && left > 0; {
			n, err := unix.Write(fd, buf[:min(one, left, len(buf))])
			if err != nil {
				return fmt.Sprintf("with %d left", left), err
			}
			one, left = one-n, left-n
			time.Sleep(pause)
		}
		switch way {
		case "mapped":
			_, err = unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
		case "sent":
			err = unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fd), nil, unix.MSG_DONTWAIT)
		default:
			continue
		}
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return "", err
		}
	}
	fmt.Println("taken")
	time.Sleep(stay)
	return a[2] + " bytes", nil
}

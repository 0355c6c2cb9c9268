// Command probe runs inside a box and tries what a tool must not be able to do:
// one attempt, named by its first argument. It prints one line, "ok" with what
// it got or the name of the error, and is run a second time without the wall it
// is up against. Statically linked, it needs nothing of the box.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// verb is one thing the probe can try.
type verb func(args []string) (string, error)

func verbs() map[string]verb {
	all := map[string]verb{}
	for _, group := range []map[string]verb{fileVerbs(), procVerbs(), netVerbs(), kernelVerbs(), callVerbs(), modeVerbs(), resourceVerbs()} {
		for name, v := range group {
			all[name] = v
		}
	}
	return all
}

func main() {
	runtime.LockOSThread()
	// An attempt with leave to do more first: it is inside of a namespace of its own.
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "serve" {
		serve(args[1])
		args = args[2:]
	}
	if len(args) > 0 && args[0] == "leaky" {
		leak()
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "victimised" {
		args = args[1:] // the last argument only asks for a victim to be there
	}
	if len(args) > 1 && args[0] == "within" {
		if err := errors.Join(unix.Chroot(args[1]), unix.Chdir("/")); err != nil {
			fmt.Println("within:", err)
			os.Exit(2)
		}
		args = args[2:]
	}
	if len(args) == 0 {
		fmt.Println("usage: probe VERB ARG...")
		return
	}
	v, ok := verbs()[args[0]]
	if !ok {
		fmt.Println("no such verb", args[0])
		os.Exit(2)
	}
	got, err := v(args[1:])
	fmt.Println(line(outcome(err) + " " + got))
}

// leak opens what a careless parent would leave open.
func leak() {
	if _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		panic(err)
	}
}

// line keeps what was found on one line.
func line(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s))
}

func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return "failed: " + err.Error()
}

// sys makes a raw call: nothing in between may refuse or retry it.
func sys(nr uintptr, args ...uintptr) error {
	_, err := sysr(nr, args...)
	return err
}

func sysr(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return r, errno
	}
	return r, nil
}

// simple is an attempt without arguments nor findings.
func simple(do func() error) verb {
	return func([]string) (string, error) { return "", do() }
}

// reached returns nil, a success, for the given errors: they mean that the system call got past
// the box's protection and the kernel refused its arguments.
func reached(err error, behind ...syscall.Errno) error {
	for _, e := range behind {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

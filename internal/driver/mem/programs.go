package mem

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is an imitated program: it gets its arguments, with its name first, and returns its
// exit status.
type program func(c *command, argv []string) int

// programs returns the imitation with that name, or nil.
func programs(name string) program {
	switch name {
	case "sh", "bash":
		return sh
	case "cat":
		return cat
	case "sleep":
		return sleep
	case "kill":
		return kill
	case "trap":
		return trap
	case "wait":
		return wait
	case "yes":
		return yes
	case "env":
		return env
	case "seq":
		return seq
	case "head":
		return head
	case "wc":
		return wc
	case "id":
		return func(c *command, _ []string) int { return c.say("1000\n") }
	}
	return filePrograms(name)
}

func sh(c *command, argv []string) int {
	name, rest, errexit := argv[:1], argv[1:], false
	for len(rest) > 0 && len(rest[0]) > 1 && rest[0][0] == '-' {
		flags := rest[0]
		rest = rest[1:]
		errexit = errexit || strings.Contains(flags, "e")
		if strings.Contains(flags, "c") {
			if len(rest) == 0 {
				return c.complain(statusUsage, "sh: -c needs a script")
			}
			if len(rest) > 1 {
				name = rest[1:]
			}
			return c.script(rest[0], name, errexit)
		}
	}
	if len(rest) > 0 {
		text, err := os.ReadFile(c.path(rest[0]))
		if err != nil {
			return c.complain(statusNotFound, "sh: %s: %v", rest[0], cause(err))
		}
		return c.script(string(text), rest, errexit)
	}
	text, err := io.ReadAll(c.stdin())
	if err != nil {
		return 1
	}
	return c.script(string(text), name, errexit)
}

func sleep(c *command, argv []string) int {
	if len(argv) < 2 {
		return c.complain(1, "sleep: a duration is needed")
	}
	if argv[1] == "infinity" {
		<-c.ctx.Done()
		return 0
	}
	sec, err := strconv.ParseFloat(strings.TrimSuffix(argv[1], "s"), 64)
	if err != nil || sec < 0 || sec > 1e9 {
		return c.complain(1, "sleep: invalid time %q", argv[1])
	}
	c.p.pause(time.Duration(sec * float64(time.Second)))
	return 0
}

func signalNumber(name string) (int, bool) {
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	for sig, n := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "TERM": syscall.SIGTERM, "SEGV": syscall.SIGSEGV,
		"ABRT": syscall.SIGABRT, "PIPE": syscall.SIGPIPE,
	} {
		if sig == name {
			return int(n), true
		}
	}
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0 && n <= 64
}

func kill(c *command, argv []string) int {
	sig, args := int(syscall.SIGTERM), argv[1:]
	if len(args) > 1 && args[0] == "-s" {
		args = append([]string{"-" + args[1]}, args[2:]...)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		n, ok := signalNumber(args[0][1:])
		if !ok {
			return c.complain(1, "kill: unknown signal %q", args[0])
		}
		sig, args = n, args[1:]
	}
	status := 0
	for _, a := range args {
		pid, err := strconv.Atoi(a)
		c.p.m.mu.Lock()
		p := c.p.m.procs[pid]
		if p != nil {
			c.p.m.hit(p, sig)
		}
		c.p.m.mu.Unlock()
		if err != nil || p == nil {
			status = c.complain(1, "kill: no process %q", a)
		}
	}
	return status
}

// trap can ignore signals (with an empty command) and stop ignoring them (-); it supports nothing else.
func trap(c *command, argv []string) int {
	if len(argv) < 3 || argv[1] != "" && argv[1] != "-" {
		return c.complain(statusUsage, "trap: the mem driver supports only '' and - as the action")
	}
	for _, name := range argv[2:] {
		n, ok := signalNumber(name)
		if !ok {
			return c.complain(1, "trap: unknown signal %q", name)
		}
		c.p.m.mu.Lock()
		c.p.ignored[n] = argv[1] == ""
		c.p.m.mu.Unlock()
	}
	return 0
}

// wait waits for all background processes of the script. With a pid as argument it waits only for that process
// and returns its status.
func wait(c *command, argv []string) int {
	c.p.m.mu.Lock()
	jobs := slices.Clone(c.s.jobs)
	c.p.m.mu.Unlock()
	status := 0
	for _, p := range jobs {
		named := len(argv) > 1 && argv[1] == strconv.Itoa(p.pid)
		if len(argv) > 1 && !named {
			continue
		}
		select {
		case <-p.ended:
		case <-c.ctx.Done():
			return 1
		}
		switch {
		case named && p.status.Signal != 0:
			status = statusSignal + p.status.Signal
		case named:
			status = p.status.Code
		}
	}
	return status
}

func yes(c *command, argv []string) int {
	line := "y\n"
	if len(argv) > 1 {
		line = strings.Join(argv[1:], " ") + "\n"
	}
	block := []byte(strings.Repeat(line, 8192/len(line)+1))
	for c.ctx.Err() == nil {
		if _, err := c.Stdout.Write(block); err != nil {
			return 1
		}
	}
	return 0
}

func env(c *command, _ []string) int {
	vars := inherited(c.Env, false)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if status := c.say("%s=%s\n", name, vars[name].Str); status != 0 {
			return status
		}
	}
	return 0
}

func seq(c *command, argv []string) int {
	from, to := 1, 0
	var err, err2 error
	switch len(argv) {
	case 2:
		to, err = strconv.Atoi(argv[1])
	case 3:
		from, err = strconv.Atoi(argv[1])
		to, err2 = strconv.Atoi(argv[2])
	}
	if err = errors.Join(err, err2); err != nil {
		return c.complain(1, "seq: %v", err)
	}
	w := bufio.NewWriter(c.Stdout)
	for i := from; i <= to && c.ctx.Err() == nil; i++ {
		if _, err := fmt.Fprintln(w, i); err != nil {
			return 1
		}
	}
	if w.Flush() != nil {
		return 1
	}
	return 0
}

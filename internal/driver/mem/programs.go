package mem

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is an imitated program: it gets its arguments, with its name first, and returns its
// exit status.
type program func(s *shell, argv []string) int

// programs returns the imitation with that name, or nil.
func programs(name string) program {
	switch name {
	case "true", ":":
		return func(*shell, []string) int { return 0 }
	case "false":
		return func(*shell, []string) int { return 1 }
	case "sh", "bash", "dash":
		return sh
	case "echo":
		return echo
	case "printf":
		return printf
	case "cat":
		return cat
	case "sleep":
		return sleep
	case "exit":
		return exit
	case "kill":
		return kill
	case "trap":
		return trap
	case "wait":
		return wait
	case "yes":
		return yes
	case "cd":
		return cd
	case "pwd":
		return func(s *shell, _ []string) int { return s.say("%s\n", s.cwd) }
	case "env", "printenv":
		return env
	case "export":
		return export
	case "set":
		return set
	case "read":
		return read
	case "test", "[":
		return test
	case "seq":
		return seq
	case "head":
		return head
	case "wc":
		return wc
	case "id":
		return func(s *shell, _ []string) int { return s.say("1000\n") }
	case "exec", "setsid", "nohup", "command":
		return replace
	}
	return filePrograms(name)
}

// say writes to stdout and returns the exit status: 1 if the write failed.
func (s *shell) say(format string, args ...any) int {
	if _, err := fmt.Fprintf(s.out, format, args...); err != nil {
		return 1
	}
	return 0
}

// complain writes a message to stderr and returns status.
func (s *shell) complain(status int, format string, args ...any) int {
	// If stderr cannot be written, the message is lost.
	_, _ = fmt.Fprintf(s.err, format+"\n", args...)
	return status
}

func sh(s *shell, argv []string) int {
	c := s.fork()
	c.args = argv
	rest := argv[1:]
	for len(rest) > 0 && len(rest[0]) > 1 && rest[0][0] == '-' {
		flags := rest[0]
		rest = rest[1:]
		c.errexit = c.errexit || strings.Contains(flags, "e")
		if strings.Contains(flags, "c") {
			if len(rest) == 0 {
				return s.complain(statusUsage, "sh: -c needs a script")
			}
			if len(rest) > 1 {
				c.args = rest[1:]
			} else {
				c.args = argv[:1]
			}
			return c.run(rest[0])
		}
	}
	if len(rest) > 0 {
		script, err := os.ReadFile(s.path(rest[0]))
		if err != nil {
			return s.complain(statusNotFound, "sh: %s: %s", rest[0], reason(err))
		}
		c.args = rest
		return c.run(string(script))
	}
	script, err := io.ReadAll(s.in)
	if err != nil {
		return 1
	}
	return c.run(string(script))
}

// replace implements exec and similar commands: it runs its arguments as a command; as exec, it then ends the shell.
func replace(s *shell, argv []string) int {
	if len(argv) < 2 {
		return 0
	}
	if argv[0] != "exec" {
		return s.command(argv[1:])
	}
	s.exit = true
	c := s.fork()
	c.exit = false
	return c.command(argv[1:])
}

func echo(s *shell, argv []string) int {
	args, end := argv[1:], "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	return s.say("%s%s", strings.Join(args, " "), end)
}

func printf(s *shell, argv []string) int {
	if len(argv) < 2 {
		return s.complain(statusUsage, "printf: a format is needed")
	}
	args := argv[2:]
	var b strings.Builder
	for first := true; first || len(args) > 0; first = false {
		before := len(args)
		args = printfOnce(&b, argv[1], args)
		if len(args) == before {
			break
		}
	}
	return s.say("%s", b.String())
}

func printfOnce(b *strings.Builder, format string, args []string) []string {
	for i := 0; i < len(format); i++ {
		c := format[i]
		if c != '%' && c != '\\' || i+1 >= len(format) {
			b.WriteByte(c)
			continue
		}
		i++
		switch {
		case c == '\\' && format[i] == '0':
			n, err := strconv.ParseUint(format[i:min(i+4, len(format))], 8, 8)
			if err != nil {
				b.WriteByte(0)
				continue
			}
			b.WriteByte(byte(n))
			i = min(i+3, len(format)-1)
		case c == '\\':
			at := strings.IndexByte("ntr\\", format[i])
			if at < 0 {
				b.WriteByte('\\')
				b.WriteByte(format[i])
				continue
			}
			b.WriteByte("\n\t\r\\"[at])
		case format[i] == '%':
			b.WriteByte('%')
		default:
			arg := ""
			if len(args) > 0 {
				arg, args = args[0], args[1:]
			}
			if format[i] == 'd' && arg == "" {
				arg = "0"
			}
			b.WriteString(arg)
		}
	}
	return args
}

func sleep(s *shell, argv []string) int {
	if len(argv) < 2 {
		return s.complain(1, "sleep: a duration is needed")
	}
	if argv[1] == "infinity" {
		<-s.p.dead
		return 0
	}
	sec, err := strconv.ParseFloat(strings.TrimSuffix(argv[1], "s"), 64)
	if err != nil || sec < 0 || sec > 1e9 {
		return s.complain(1, "sleep: invalid time %q", argv[1])
	}
	s.pause(time.Duration(sec * float64(time.Second)))
	return 0
}

func exit(s *shell, argv []string) int {
	s.exit = true
	if len(argv) > 1 {
		n, err := strconv.Atoi(argv[1])
		if err != nil {
			return s.complain(statusUsage, "exit: %q is not a number", argv[1])
		}
		return n & 0xff
	}
	return s.status
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

func kill(s *shell, argv []string) int {
	sig, args := int(syscall.SIGTERM), argv[1:]
	if len(args) > 1 && args[0] == "-s" {
		args = append([]string{"-" + args[1]}, args[2:]...)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		n, ok := signalNumber(args[0][1:])
		if !ok {
			return s.complain(1, "kill: unknown signal %q", args[0])
		}
		sig, args = n, args[1:]
	}
	status := 0
	for _, a := range args {
		pid, err := strconv.Atoi(a)
		s.m.mu.Lock()
		p := s.m.procs[pid]
		if p != nil {
			s.m.hit(p, sig)
		}
		s.m.mu.Unlock()
		if err != nil || p == nil {
			status = s.complain(1, "kill: no process %q", a)
		}
	}
	return status
}

// trap can ignore signals (with an empty command) and stop ignoring them (-); it supports nothing else.
func trap(s *shell, argv []string) int {
	if len(argv) < 3 || argv[1] != "" && argv[1] != "-" {
		return s.complain(statusUsage, "trap: the mem driver supports only '' and - as the action")
	}
	for _, name := range argv[2:] {
		n, ok := signalNumber(name)
		if !ok {
			return s.complain(1, "trap: unknown signal %q", name)
		}
		s.m.mu.Lock()
		s.p.ignored[n] = argv[1] == ""
		s.m.mu.Unlock()
	}
	return 0
}

func wait(s *shell, _ []string) int {
	for _, p := range s.jobs {
		select {
		case <-p.ended:
		case <-s.p.dead:
		}
	}
	s.jobs = nil
	return 0
}

func yes(s *shell, argv []string) int {
	line := "y\n"
	if len(argv) > 1 {
		line = strings.Join(argv[1:], " ") + "\n"
	}
	block := []byte(strings.Repeat(line, 8192/len(line)+1))
	for !s.over() {
		if _, err := s.out.Write(block); err != nil {
			return 1
		}
	}
	return 0
}

func cd(s *shell, argv []string) int {
	to := s.vars["HOME"]
	if len(argv) > 1 {
		to = argv[1]
	}
	info, err := os.Stat(s.path(to))
	if err != nil || !info.IsDir() {
		return s.complain(1, "cd: %s: no such directory", to)
	}
	s.cwd = s.abs(to)
	return 0
}

func env(s *shell, argv []string) int {
	if argv[0] == "printenv" && len(argv) > 1 {
		v, ok := s.vars[argv[1]]
		if !ok || !s.exported[argv[1]] {
			return 1
		}
		return s.say("%s\n", v)
	}
	var names []string
	for name, on := range s.exported {
		if on {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		if status := s.say("%s=%s\n", name, s.vars[name]); status != 0 {
			return status
		}
	}
	return 0
}

func export(s *shell, argv []string) int {
	for _, a := range argv[1:] {
		if !strings.Contains(a, "=") {
			a += "=" + s.vars[a]
		}
		s.setenv(a)
	}
	return 0
}

func set(s *shell, argv []string) int {
	for _, a := range argv[1:] {
		if strings.HasPrefix(a, "-") && strings.Contains(a, "e") {
			s.errexit = true
		}
	}
	return 0
}

func read(s *shell, argv []string) int {
	var line []byte
	var one [1]byte
	for {
		n, err := s.in.Read(one[:])
		if n == 1 && one[0] == '\n' {
			break
		}
		line = append(line, one[:n]...)
		if err != nil {
			if len(line) == 0 {
				return 1
			}
			break
		}
	}
	names := argv[1:]
	if len(names) > 0 && names[0] == "-r" {
		names = names[1:]
	}
	rest := string(line)
	for i, name := range names {
		if i == len(names)-1 {
			s.vars[name] = rest
			break
		}
		s.vars[name], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	return 0
}

func test(s *shell, argv []string) int {
	args := argv[1:]
	if argv[0] == "[" {
		if len(args) == 0 || args[len(args)-1] != "]" {
			return s.complain(statusUsage, "[: no ]")
		}
		args = args[:len(args)-1]
	}
	if len(args) > 0 && args[0] == "!" {
		return 1 - min(1, testOne(s, args[1:]))
	}
	return testOne(s, args)
}

func testOne(s *shell, args []string) int {
	ok := false
	switch len(args) {
	case 1:
		ok = args[0] != ""
	case 2:
		info, err := os.Stat(s.path(args[1]))
		switch args[0] {
		case "-n":
			ok = args[1] != ""
		case "-z":
			ok = args[1] == ""
		case "-e":
			ok = err == nil
		case "-f":
			ok = err == nil && info.Mode().IsRegular()
		case "-d":
			ok = err == nil && info.IsDir()
		case "-s":
			ok = err == nil && info.Size() > 0
		case "-r", "-w", "-x":
			ok = err == nil
		default:
			return s.complain(statusUsage, "test: unknown operator %s", args[0])
		}
	case 3:
		a, _ := strconv.Atoi(args[0])
		b, _ := strconv.Atoi(args[2])
		switch args[1] {
		case "=", "==":
			ok = args[0] == args[2]
		case "!=":
			ok = args[0] != args[2]
		case "-eq":
			ok = a == b
		case "-ne":
			ok = a != b
		case "-lt":
			ok = a < b
		case "-le":
			ok = a <= b
		case "-gt":
			ok = a > b
		case "-ge":
			ok = a >= b
		default:
			return s.complain(statusUsage, "test: unknown operator %s", args[1])
		}
	default:
		return 1
	}
	if ok {
		return 0
	}
	return 1
}

func seq(s *shell, argv []string) int {
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
		return s.complain(1, "seq: %v", err)
	}
	w := bufio.NewWriter(s.out)
	for i := from; i <= to && !s.over(); i++ {
		if _, err := fmt.Fprintln(w, i); err != nil {
			return 1
		}
	}
	if w.Flush() != nil {
		return 1
	}
	return 0
}

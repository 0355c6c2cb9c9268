package mem

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/internal/driver/mem/script"
)

// shell runs scripts. A copy of a shell is a subshell.
type shell struct {
	m    *machine
	p    *proc
	vars map[string]string
	// exported holds the names of the variables that started programs get in their environment.
	exported map[string]bool
	args     []string
	cwd      string
	in       io.Reader
	out, err io.Writer
	status   int
	exit     bool
	errexit  bool
	jobs     []*proc
}

const (
	statusUsage    = 2
	statusNotFound = 127
	statusSignal   = 128
)

func (s *shell) setenv(kv string) {
	name, value, _ := strings.Cut(kv, "=")
	if s.exported == nil {
		s.exported = map[string]bool{}
	}
	s.vars[name], s.exported[name] = value, true
}

func (s *shell) fork() *shell {
	c := *s
	c.vars, c.exported = maps.Clone(s.vars), maps.Clone(s.exported)
	c.jobs = nil
	return &c
}

// over reports whether the script must stop: the shell has exited or its process was killed.
func (s *shell) over() bool {
	select {
	case <-s.p.dead:
		return true
	default:
		return s.exit
	}
}

// step runs fn as one step, and waits first while the box is frozen. It returns false if the process was killed.
func (s *shell) step(fn func()) bool {
	if !s.m.ice.enter(s.p.dead) {
		return false
	}
	defer s.m.ice.leave()
	fn()
	return true
}

// pause waits for d, or until the process is killed.
func (s *shell) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.p.dead:
	}
}

// stdio returns one of the process's own descriptors as a stream.
func (s *shell) stdio(fd int) *stream { return &stream{m: s.m, p: s.p, f: s.p.files[fd], fd: fd} }

// rebind turns a parent's stream into one of this process, whose descriptors live longer than the parent's.
func (s *shell) rebind(w io.Writer) io.Writer {
	st, ok := w.(*stream)
	if !ok {
		return w
	}
	if !st.file {
		return s.stdio(st.fd)
	}
	return &stream{m: s.m, p: s.p, f: st.f, file: true}
}

// stream is a file or pipe. Each use of a file is one step of the process; a pipe, which may
// block, is used between two steps.
type stream struct {
	m    *machine
	p    *proc
	f    io.ReadWriteCloser
	fd   int
	file bool
}

var errDead = errors.New("the imitated process was killed")

func (t *stream) Read(b []byte) (int, error) {
	if !t.m.ice.enter(t.p.dead) {
		return 0, errDead
	}
	if t.file {
		defer t.m.ice.leave()
		return t.f.Read(b)
	}
	t.m.ice.leave()
	return t.f.Read(b)
}

func (t *stream) Write(b []byte) (int, error) {
	if !t.m.ice.enter(t.p.dead) {
		return 0, errDead
	}
	if t.file {
		defer t.m.ice.leave()
		return t.f.Write(b)
	}
	t.m.ice.leave()
	n, err := t.f.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		t.m.mu.Lock()
		t.m.hit(t.p, int(syscall.SIGPIPE))
		t.m.mu.Unlock()
	}
	return n, err
}

// run parses and runs a script and returns its exit status.
func (s *shell) run(text string) int {
	l, err := script.Parse(text)
	if err != nil {
		fmt.Fprintf(s.err, "%s: %v\n", s.args[0], err)
		s.status = statusUsage
		return s.status
	}
	s.list(l)
	return s.status
}

func (s *shell) list(l script.List) {
	for _, it := range l {
		if s.over() {
			return
		}
		if it.Background {
			s.background(it.AndOr)
			continue
		}
		s.andOr(it.AndOr)
		if s.errexit && s.status != 0 && len(it.AndOr.Rest) == 0 && !it.AndOr.First.Negate {
			s.exit = true
		}
	}
}

// background runs a list as a process of its own, in the same process group.
func (s *shell) background(ao script.AndOr) {
	files, err := dupAll(s.p.files)
	if err != nil {
		fmt.Fprintln(s.err, err)
		s.status = 1
		return
	}
	c := s.fork()
	out, errw := s.out, s.err
	c.in, c.out, c.err = nil, nil, nil
	p, err := s.m.run(c, s.p, s.p.mark, files, s.p.name, func() int {
		// As in a real shell, a background process does not read the shell's stdin.
		c.in = strings.NewReader("")
		c.out, c.err = c.rebind(out), c.rebind(errw)
		c.andOr(ao)
		return c.status
	})
	if err != nil {
		s.status = 1
		return
	}
	s.jobs = append(s.jobs, p)
	s.vars["!"] = strconv.Itoa(p.pid)
	s.status = 0
}

func (s *shell) andOr(ao script.AndOr) {
	s.pipeline(ao.First)
	for _, l := range ao.Rest {
		if s.over() {
			return
		}
		if (s.status == 0) == l.And {
			s.pipeline(l.Next)
		}
	}
}

func (s *shell) pipeline(pl script.Pipeline) {
	if len(pl.Commands) == 1 {
		s.node(pl.Commands[0])
	} else {
		s.pipe(pl.Commands)
	}
	if pl.Negate {
		if s.status == 0 {
			s.status = 1
		} else {
			s.status = 0
		}
	}
}

// pipe runs all commands at the same time, each in a subshell.
func (s *shell) pipe(cmds []script.Command) {
	var wg sync.WaitGroup
	in := s.in
	var before *io.PipeReader
	var last *shell
	for i, cmd := range cmds {
		c := s.fork()
		c.in = in
		reader := before
		var writer *io.PipeWriter
		if i < len(cmds)-1 {
			r, w := io.Pipe()
			undoR, undoW := s.p.track(r), s.p.track(w)
			defer undoR()
			defer undoW()
			c.out = w
			in, before, writer = r, r, w
		}
		last = c
		wg.Go(func() {
			c.node(cmd)
			if writer != nil {
				_ = writer.Close()
			}
			if reader != nil {
				_ = reader.Close()
			}
		})
	}
	wg.Wait()
	s.status = last.status
}

func (s *shell) node(c script.Command) {
	if s.over() {
		return
	}
	switch c := c.(type) {
	case script.Simple:
		s.simple(c)
	case script.Compound:
		undo, ok := s.redirect(c.Redirs)
		if !ok {
			return
		}
		defer undo()
		if !c.Subshell {
			s.list(c.Body)
			return
		}
		sub := s.fork()
		sub.list(c.Body)
		s.status = sub.status
	case script.If:
		s.quietly(func() { s.list(c.Cond) })
		if s.status == 0 {
			s.list(c.Then)
		} else {
			s.status = 0
			s.list(c.Else)
		}
	case script.While:
		status := 0
		for !s.over() {
			s.quietly(func() { s.list(c.Cond) })
			if (s.status == 0) == c.Until {
				break
			}
			s.list(c.Body)
			status = s.status
		}
		if !s.exit {
			s.status = status
		}
	case script.For:
		var values []string
		for _, w := range c.Words {
			values = append(values, s.fields(w)...)
		}
		s.status = 0
		for _, v := range values {
			if s.over() {
				return
			}
			s.vars[c.Name] = v
			s.list(c.Body)
		}
	}
}

// quietly runs a condition: its failure does not end the script, even with set -e.
func (s *shell) quietly(fn func()) {
	was := s.errexit
	s.errexit = false
	fn()
	s.errexit = was
}

func (s *shell) simple(c script.Simple) {
	var argv []string
	for _, w := range c.Words {
		argv = append(argv, s.fields(w)...)
	}
	undo, ok := s.redirect(c.Redirs)
	if !ok {
		return
	}
	defer undo()
	if len(argv) == 0 {
		s.status = 0
		for _, a := range c.Assigns {
			s.vars[a.Name] = s.text(a.Value)
		}
		return
	}
	if len(c.Assigns) > 0 {
		// Assignments before a command apply to that command only.
		before, exported := maps.Clone(s.vars), maps.Clone(s.exported)
		for _, a := range c.Assigns {
			s.setenv(a.Name + "=" + s.text(a.Value))
		}
		defer func() { s.vars, s.exported = before, exported }()
	}
	s.status = s.command(argv)
}

// command runs a program and returns its exit status.
func (s *shell) command(argv []string) int {
	name := argv[0]
	if prog := programs(filepath.Base(name)); prog != nil {
		defer s.p.rename(s.p.rename(filepath.Base(name)))
		var status int
		if !s.step(func() {}) {
			return statusSignal
		}
		status = prog(s, argv)
		return status
	}
	if strings.Contains(name, "/") {
		script, err := os.ReadFile(s.path(name))
		if err == nil {
			sub := s.fork()
			sub.args = slices.Clone(argv)
			return sub.run(string(script))
		}
	}
	fmt.Fprintf(s.err, "sh: %s: not found\n", name)
	return statusNotFound
}

// known reports whether command would find a program with that path.
func (s *shell) known(path string) bool {
	if programs(filepath.Base(path)) != nil {
		return true
	}
	info, err := os.Stat(s.path(path))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// path returns the host's path of a file that a script names.
func (s *shell) path(p string) string { return s.m.real(s.abs(p)) }

func (s *shell) abs(p string) string {
	if !filepath.IsAbs(p) {
		p = filepath.Join(s.cwd, p)
	}
	return filepath.Clean(p)
}

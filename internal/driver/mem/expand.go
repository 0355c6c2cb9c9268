package mem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/internal/driver/mem/script"
)

// redirect applies redirections to the streams until undo is called; ok is false if a file cannot be opened.
func (s *shell) redirect(rs []script.Redir) (undo func(), ok bool) {
	in, out, errw := s.in, s.out, s.err
	var opened []func()
	undo = func() {
		s.in, s.out, s.err = in, out, errw
		for _, c := range opened {
			c()
		}
	}
	for _, r := range rs {
		target := s.text(r.Target)
		if r.Op == ">&" {
			switch {
			case r.FD == 2 && target == "1":
				s.err = s.out
			case r.FD == 1 && target == "2":
				s.out = s.err
			default:
				return s.refuse(undo, "descriptor "+target)
			}
			continue
		}
		f, err := s.open(r.Op, target)
		if err != nil {
			return s.refuse(undo, target+": "+reason(err))
		}
		opened = append(opened, s.p.track(f))
		st := &stream{m: s.m, p: s.p, f: f, file: true}
		switch r.FD {
		case 0:
			s.in = st
		case 1:
			s.out = st
		default:
			s.err = st
		}
	}
	return undo, true
}

func (s *shell) refuse(undo func(), what string) (func(), bool) {
	undo()
	fmt.Fprintf(s.err, "sh: %s\n", what)
	s.status = 1
	return nil, false
}

func (s *shell) open(op, target string) (f *os.File, err error) {
	flags := os.O_RDONLY
	switch op {
	case ">":
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	case ">>":
		flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	path := s.path(target)
	if s.abs(target) == os.DevNull {
		path = os.DevNull
	}
	if !s.step(func() { f, err = os.OpenFile(path, flags, 0o644) }) {
		return nil, errDead
	}
	return f, err
}

// text returns the expansion of a word, without splitting it into fields.
func (s *shell) text(w script.Word) string {
	var b strings.Builder
	for _, p := range w {
		b.WriteString(s.part(p))
	}
	return b.String()
}

// fields returns the expansion of a word, split into fields where it is not quoted.
func (s *shell) fields(w script.Word) []string {
	var out []string
	var cur strings.Builder
	open, none := false, false
	for _, p := range w {
		if p.Kind == script.Text || p.Quoted {
			if p.Kind == script.Variable && p.Text == "@" {
				// "$@" becomes one field for each argument, and no field without arguments.
				for i, a := range s.args[1:] {
					if i > 0 {
						out = append(out, cur.String())
						cur.Reset()
					}
					cur.WriteString(a)
				}
				open = len(s.args) > 1 || cur.Len() > 0
				none = len(s.args) == 1
				continue
			}
			cur.WriteString(s.part(p))
			open = !none || cur.Len() > 0
			continue
		}
		v := s.part(p)
		pieces := strings.Fields(v)
		if v != "" && strings.TrimLeft(v, " \t\n") != v && open {
			out = append(out, cur.String())
			cur.Reset()
			open = false
		}
		for i, piece := range pieces {
			if i > 0 {
				out = append(out, cur.String())
				cur.Reset()
			}
			cur.WriteString(piece)
			open = true
		}
	}
	if open {
		out = append(out, cur.String())
	}
	return out
}

func (s *shell) part(p script.Part) string {
	switch p.Kind {
	case script.Variable:
		return s.variable(p.Text)
	case script.Substitution:
		var b bytes.Buffer
		c := s.fork()
		c.out = &b
		c.list(p.Sub)
		s.status = c.status
		return strings.TrimRight(b.String(), "\n")
	case script.Arithmetic:
		return strconv.FormatInt(arith(p.Text, s.variable), 10)
	}
	return p.Text
}

func (s *shell) variable(name string) string {
	switch name {
	case "?":
		return strconv.Itoa(s.status)
	case "$":
		return strconv.Itoa(s.p.pid)
	case "#":
		return strconv.Itoa(len(s.args) - 1)
	case "@":
		return strings.Join(s.args[1:], " ")
	case "PWD":
		return s.cwd
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n < len(s.args) {
			return s.args[n]
		}
		return ""
	}
	return s.vars[name]
}

// arith evaluates a sum of numbers and variables from left to right, with + and - only, which is
// enough for counters.
func arith(expr string, variable func(name string) string) int64 {
	var sum int64
	sign := int64(1)
	for _, f := range strings.Fields(strings.NewReplacer("+", " + ", "-", " - ", "$", "").Replace(expr)) {
		switch f {
		case "+":
			sign = 1
		case "-":
			sign = -1
		default:
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				n, _ = strconv.ParseInt(variable(f), 10, 64)
			}
			sum += sign * n
		}
	}
	return sum
}

// reason returns the cause of an error without the host's path.
func reason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err.Error()
	}
	return err.Error()
}

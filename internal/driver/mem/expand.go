package mem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// redirect changes the streams until undo; false when a file cannot be opened.
func (s *shell) redirect(rs []redir) (undo func(), ok bool) {
	in, out, errw := s.in, s.out, s.err
	var opened []func()
	undo = func() {
		s.in, s.out, s.err = in, out, errw
		for _, c := range opened {
			c()
		}
	}
	for _, r := range rs {
		target := s.text(r.target)
		if r.op == ">&" {
			switch {
			case r.fd == 2 && target == "1":
				s.err = s.out
			case r.fd == 1 && target == "2":
				s.out = s.err
			default:
				return s.refuse(undo, "descriptor "+target)
			}
			continue
		}
		f, err := s.open(r.op, target)
		if err != nil {
			return s.refuse(undo, target+": "+reason(err))
		}
		opened = append(opened, s.p.track(f))
		st := &stream{m: s.m, p: s.p, f: f, file: true}
		switch r.fd {
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

// text is a word's expansion without splitting.
func (s *shell) text(w word) string {
	var b strings.Builder
	for _, p := range w {
		b.WriteString(s.part(p))
	}
	return b.String()
}

// fields is a word's expansion, split where nothing is quoted.
func (s *shell) fields(w word) []string {
	var out []string
	var cur strings.Builder
	open, none := false, false
	for _, p := range w {
		if p.kind == partText || p.quoted {
			if p.kind == partVar && p.text == "@" {
				// "$@" is one field for each, and none for none.
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

func (s *shell) part(p part) string {
	switch p.kind {
	case partVar:
		return s.variable(p.text)
	case partSub:
		var b bytes.Buffer
		c := s.fork()
		c.out = &b
		c.list(p.sub)
		s.status = c.status
		return strings.TrimRight(b.String(), "\n")
	case partArith:
		return strconv.FormatInt(s.arith(p.text), 10)
	}
	return p.text
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

// arith computes + and - of numbers and names, left to right: what counters need.
func (s *shell) arith(expr string) int64 {
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
				n, _ = strconv.ParseInt(s.variable(f), 10, 64)
			}
			sum += sign * n
		}
	}
	return sum
}

// reason is an error's cause without the host's path.
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

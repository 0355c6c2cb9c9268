package boxd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// stdio holds both ends of a process's pipes or terminal: child has those of the process, the other fields boxd's own.
type stdio struct {
	child []*os.File
	// in is nil if the process has no stdin, err if stderr goes into out. For a terminal in, out and tty are one file.
	in, out, err, tty *os.File
}

func (x *stdio) closeChild() {
	if x != nil {
		closeAll(x.child)
		x.child = nil
	}
}

func (x *stdio) closeOwn() {
	if x == nil {
		return
	}
	x.closeChild()
	if x.tty != nil {
		_ = x.tty.Close()
		return
	}
	closeAll([]*os.File{x.in, x.out, x.err})
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// checkExec returns an error if an exec request is invalid in every box. For a terminal it also sets Merge and Stdin.
func checkExec(req *wire.ExecRequest) error {
	bad := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd exec", format, args...)
	}
	if (len(req.Argv) == 0) == (req.Shell == "") {
		return bad("an exec request needs exactly one of argv and shell")
	}
	if len(req.Argv) > 0 && req.Argv[0] == "" {
		return bad("the command's argv names no program")
	}
	for _, a := range append(slices.Clone(req.Argv), req.Shell, req.Cwd) {
		if strings.ContainsRune(a, 0) {
			return bad("the argument, shell text or working directory %s holds a NUL byte, which no command can have", holdfast.Quote(a))
		}
	}
	for _, v := range req.Env {
		if i := strings.IndexByte(v, '='); i <= 0 || strings.ContainsRune(v, 0) {
			return bad("the environment entry %s is not NAME=value", holdfast.Quote(v))
		}
	}
	if req.TimeoutMS < 0 {
		return bad("the command's timeout of %d ms is negative", req.TimeoutMS)
	}
	if req.PTY != nil {
		req.Merge, req.Stdin = true, true
		if req.Lines {
			return bad("an exec request cannot have both a terminal and a line protocol")
		}
	}
	return nil
}

// prepare finds the program of a call and opens its pipes or terminal.
func (s *Server) prepare(e *execution) (StartSpec, *stdio, error) {
	req := e.req
	spec := StartSpec{Env: mergeEnv(s.cfg.Env, req.Env), Dir: s.cfg.Workspace, Mark: e.mark, TTY: req.PTY != nil, Layers: e.layers, Place: e.place}
	if filepath.IsAbs(req.Cwd) {
		spec.Dir = filepath.Clean(req.Cwd)
	} else if req.Cwd != "" {
		spec.Dir = filepath.Join(s.cfg.Workspace, req.Cwd)
	}
	find := func() error { return program(&spec, req) }
	var err error
	if e.place != nil && (req.Shell != "" || !strings.Contains(req.Argv[0], "/")) {
		err = e.place.Do(find)
	} else {
		err = find()
	}
	if err != nil {
		return spec, nil, err
	}
	x, err := s.openIO(req, e.place)
	if err != nil {
		if holdfast.KindOf(err) == holdfast.KindInternal {
			err = holdfast.Errorf(holdfast.KindUnavailable, "boxd exec", "cannot open the pipes or the terminal of the command: %w", err)
		}
		return spec, nil, err
	}
	spec.Stdin, spec.Stdout, spec.Stderr = s.null, x.child[0], x.child[len(x.child)-1]
	if x.in != nil && x.tty == nil {
		spec.Stdin, spec.Stdout = x.child[0], x.child[1]
	}
	if x.tty != nil {
		spec.Stdin = x.child[0]
	}
	return spec, x, nil
}

// program sets the program and the arguments of spec. It looks for the program in the files that the thread sees.
func program(spec *StartSpec, req wire.ExecRequest) (err error) {
	if req.Shell == "" {
		spec.Argv = req.Argv
		spec.Path, err = lookPath(req.Argv[0], spec.Dir, spec.Env)
		return err
	}
	if spec.Path, err = lookPath("bash", spec.Dir, spec.Env); err != nil {
		spec.Path, err = lookPath("sh", spec.Dir, spec.Env)
	}
	// Give the shell its absolute path as argv[0], so that it does not search for its program.
	spec.Argv = []string{spec.Path, "-c", req.Shell}
	return err
}

// openIO opens the pipes or the terminal of a process. In the result, child has in this order: stdin if the process has
// one, stdout, and stderr if it is separate; for a terminal only the slave end.
func (s *Server) openIO(req wire.ExecRequest, place Place) (*stdio, error) {
	if req.PTY != nil {
		master, slave, err := openTerminal(s.cfg.Hands, place)
		if err != nil {
			return nil, err
		}
		_ = setSize(master, *req.PTY)
		return &stdio{in: master, out: master, tty: master, child: []*os.File{slave}}, nil
	}
	x := &stdio{}
	pipe := func(own **os.File, childReads bool) error {
		o, c, err := openPipe(childReads)
		if err != nil {
			x.closeOwn()
			return err
		}
		*own, x.child = o, append(x.child, c)
		return nil
	}
	if req.Stdin {
		if err := pipe(&x.in, true); err != nil {
			return nil, err
		}
	}
	if err := pipe(&x.out, false); err != nil {
		return nil, err
	}
	if !req.Merge {
		if err := pipe(&x.err, false); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// openTerminal opens a terminal: in a shared box in the session's place, because each place has terminals of its own.
func openTerminal(hands Hands, place Place) (master, slave *os.File, err error) {
	if place == nil {
		return hands.OpenPTY()
	}
	err = place.Own(func() (err error) {
		master, slave, err = openPTY()
		return err
	})
	return master, slave, err
}

// mergeEnv returns the entries of base and add. Of several entries with the same name, the last one counts.
func mergeEnv(base, add []string) []string {
	if len(add) == 0 {
		return base
	}
	out := make([]string, 0, len(base)+len(add))
	at := make(map[string]int, len(base)+len(add))
	for _, list := range [][]string{base, add} {
		for _, v := range list {
			name, _, _ := strings.Cut(v, "=")
			if i, ok := at[name]; ok {
				out[i] = v
				continue
			}
			at[name] = len(out)
			out = append(out, v)
		}
	}
	return out
}

// lookPath returns a program's path: a relative name with a slash is below dir, a name without one in the PATH of env.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	path := defaultPath
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		full := filepath.Join(d, name)
		if paths.IsProgram(full) {
			return full, nil
		}
	}
	return "", holdfast.Errorf(holdfast.KindNotFound, "boxd exec", "the program %s is not in PATH", holdfast.Quote(name)).
		WithHint("the PATH of the command is %s", path)
}

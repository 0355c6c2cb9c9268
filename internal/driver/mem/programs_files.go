package mem

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// input opens the file name for reading; stdin if name is empty or "-".
func (s *shell) input(name string) (io.Reader, func(), error) {
	if name == "" || name == "-" {
		return s.in, func() {}, nil
	}
	f, err := s.open("<", name)
	if err != nil {
		return nil, nil, err
	}
	return &stream{m: s.m, p: s.p, f: f, file: s.abs(name) != os.DevNull}, s.p.track(f), nil
}

func cat(s *shell, argv []string) int {
	names := argv[1:]
	if len(names) == 0 {
		names = []string{"-"}
	}
	status := 0
	for _, name := range names {
		r, done, err := s.input(name)
		if err != nil {
			status = s.complain(1, "cat: %s: %s", name, reason(err))
			continue
		}
		if _, err := io.Copy(plainWriter{s.out}, plainReader{r}); err != nil && !errors.Is(err, fs.ErrClosed) {
			status = s.complain(1, "cat: %s: %s", name, reason(err))
		}
		done()
	}
	return status
}

// plainReader and plainWriter hide other methods from io.Copy, so that every read and every write
// is a step.
type (
	plainReader struct{ io.Reader }
	plainWriter struct{ io.Writer }
)

func head(s *shell, argv []string) int {
	lines, count, name := true, 10, ""
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		switch {
		case (a == "-c" || a == "-n") && i+1 < len(argv):
			i++
			lines = a == "-n"
			count, _ = strconv.Atoi(argv[i])
		case len(a) > 1 && a[0] == '-':
			count, _ = strconv.Atoi(strings.TrimLeft(a, "-cn"))
			lines = !strings.HasPrefix(a, "-c")
		default:
			name = a
		}
	}
	r, done, err := s.input(name)
	if err != nil {
		return s.complain(1, "head: %s: %s", name, reason(err))
	}
	defer done()
	if !lines {
		if _, err := io.CopyN(plainWriter{s.out}, plainReader{r}, int64(count)); err != nil && err != io.EOF {
			return 1
		}
		return 0
	}
	br := bufio.NewReader(r)
	for range count {
		line, err := br.ReadString('\n')
		if status := s.say("%s", line); status != 0 {
			return status
		}
		if err != nil {
			break
		}
	}
	return 0
}

func wc(s *shell, argv []string) int {
	flag, name := "", ""
	for _, a := range argv[1:] {
		if strings.HasPrefix(a, "-") {
			flag = a
		} else {
			name = a
		}
	}
	r, done, err := s.input(name)
	if err != nil {
		return s.complain(1, "wc: %s: %s", name, reason(err))
	}
	defer done()
	b, err := io.ReadAll(r)
	if err != nil {
		return 1
	}
	n := len(b)
	if flag == "-l" {
		n = strings.Count(string(b), "\n")
	}
	if name != "" {
		return s.say("%d %s\n", n, name)
	}
	return s.say("%d\n", n)
}

// filePrograms returns the imitated program of that name that changes or lists files, or nil.
func filePrograms(name string) program {
	switch name {
	case "mkdir":
		return eachFile(func(_ *shell, path string, flags string) error {
			if strings.Contains(flags, "p") {
				return os.MkdirAll(path, 0o755)
			}
			return os.Mkdir(path, 0o755)
		})
	case "rm":
		return eachFile(func(_ *shell, path string, flags string) error {
			var err error
			if strings.ContainsAny(flags, "rR") {
				err = os.RemoveAll(path)
			} else {
				err = os.Remove(path)
			}
			if strings.Contains(flags, "f") && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
	case "touch":
		return eachFile(func(_ *shell, path string, _ string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		})
	case "chmod":
		return chmod
	case "mv":
		return twoFiles(os.Rename)
	case "cp":
		return twoFiles(func(from, to string) error {
			b, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			return os.WriteFile(to, b, 0o644)
		})
	case "ls":
		return ls
	case "sync":
		return func(*shell, []string) int { return 0 }
	}
	return nil
}

func eachFile(do func(s *shell, path, flags string) error) program {
	return func(s *shell, argv []string) int {
		flags, status := "", 0
		for _, a := range argv[1:] {
			if strings.HasPrefix(a, "-") {
				flags += a
				continue
			}
			var err error
			if !s.step(func() { err = do(s, s.path(a), flags) }) {
				return 1
			}
			if err != nil {
				status = s.complain(1, "%s: %s: %s", argv[0], a, reason(err))
			}
		}
		return status
	}
}

func twoFiles(do func(from, to string) error) program {
	return func(s *shell, argv []string) int {
		if len(argv) != 3 {
			return s.complain(statusUsage, "%s: two names are needed", argv[0])
		}
		from, to := s.path(argv[1]), s.path(argv[2])
		if info, err := os.Stat(to); err == nil && info.IsDir() {
			to = filepath.Join(to, filepath.Base(from))
		}
		var err error
		if !s.step(func() { err = do(from, to) }) {
			return 1
		}
		if err != nil {
			return s.complain(1, "%s: %s: %s", argv[0], argv[1], reason(err))
		}
		return 0
	}
}

func chmod(s *shell, argv []string) int {
	if len(argv) < 3 {
		return s.complain(statusUsage, "chmod: a mode and a name are needed")
	}
	mode, err := strconv.ParseUint(argv[1], 8, 32)
	if argv[1] == "+x" {
		mode, err = 0o755, nil
	}
	if err != nil {
		return s.complain(statusUsage, "chmod: the mem driver does not support the mode %q", argv[1])
	}
	return eachFile(func(_ *shell, path, _ string) error {
		return os.Chmod(path, fs.FileMode(mode&0o777))
	})(s, append(argv[:1:1], argv[2:]...))
}

func ls(s *shell, argv []string) int {
	name := "."
	for _, a := range argv[1:] {
		if !strings.HasPrefix(a, "-") {
			name = a
		}
	}
	info, err := os.Stat(s.path(name))
	if err != nil {
		return s.complain(statusUsage, "ls: %s: %s", name, reason(err))
	}
	if !info.IsDir() {
		return s.say("%s\n", name)
	}
	entries, err := os.ReadDir(s.path(name))
	if err != nil {
		return s.complain(statusUsage, "ls: %s: %s", name, reason(err))
	}
	for _, e := range entries {
		if status := s.say("%s\n", e.Name()); status != 0 {
			return status
		}
	}
	return 0
}

package mem

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// reader reads a file of a process. Each read of a regular file is one step of the process; a read
// of a pipe, which may block, is between two steps, and ends when the process is killed.
type reader struct {
	*stream
}

// Read reads from the file, or waits while the process is frozen.
func (t reader) Read(b []byte) (n int, err error) {
	if t.regular {
		if !t.p.step(func() { n, err = t.f.Read(b) }) {
			return 0, errDead
		}
		return n, err
	}
	if !t.p.step(func() {}) {
		return 0, errDead
	}
	stop := context.AfterFunc(t.p.ctx, func() { _ = t.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return t.f.Read(b)
}

// stdin returns the command's stdin, which is empty if it was closed.
func (c *command) stdin() io.Reader {
	if f, ok := c.Stdin.(*os.File); ok {
		return reader{c.p.stream(f)}
	}
	return strings.NewReader("")
}

// input opens the file name for reading; stdin if name is empty or "-".
func (c *command) input(name string) (io.Reader, func(), error) {
	if name == "" || name == "-" {
		return c.stdin(), func() {}, nil
	}
	f, err := c.p.open(c.Dir, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	return reader{c.p.stream(f)}, func() { _ = f.Close() }, nil
}

func cat(c *command, argv []string) int {
	names := argv[1:]
	if len(names) == 0 {
		names = []string{"-"}
	}
	status := 0
	for _, name := range names {
		r, done, err := c.input(name)
		if err != nil {
			status = c.complain(1, "cat: %s: %v", name, cause(err))
			continue
		}
		if _, err := io.Copy(plainWriter{c.Stdout}, plainReader{r}); err != nil && !errors.Is(err, fs.ErrClosed) {
			status = c.complain(1, "cat: %s: %v", name, cause(err))
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

func head(c *command, argv []string) int {
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
	r, done, err := c.input(name)
	if err != nil {
		return c.complain(1, "head: %s: %v", name, cause(err))
	}
	defer done()
	if !lines {
		if _, err := io.CopyN(plainWriter{c.Stdout}, plainReader{r}, int64(count)); err != nil && err != io.EOF {
			return 1
		}
		return 0
	}
	br := bufio.NewReader(r)
	for range count {
		line, err := br.ReadString('\n')
		if status := c.say("%s", line); status != 0 {
			return status
		}
		if err != nil {
			break
		}
	}
	return 0
}

func wc(c *command, argv []string) int {
	flag, name := "", ""
	for _, a := range argv[1:] {
		if strings.HasPrefix(a, "-") {
			flag = a
		} else {
			name = a
		}
	}
	r, done, err := c.input(name)
	if err != nil {
		return c.complain(1, "wc: %s: %v", name, cause(err))
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
		return c.say("%d %s\n", n, name)
	}
	return c.say("%d\n", n)
}

// filePrograms returns the imitated program of that name that changes or lists files, or nil.
func filePrograms(name string) program {
	switch name {
	case "mkdir":
		return eachFile(func(path string, flags string) error {
			if strings.Contains(flags, "p") {
				return os.MkdirAll(path, 0o755)
			}
			return os.Mkdir(path, 0o755)
		})
	case "rm":
		return eachFile(func(path string, flags string) error {
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
		return eachFile(func(path string, _ string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		})
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
	}
	return nil
}

func eachFile(do func(path, flags string) error) program {
	return func(c *command, argv []string) int {
		flags, status := "", 0
		for _, a := range argv[1:] {
			if strings.HasPrefix(a, "-") {
				flags += a
				continue
			}
			var err error
			if !c.p.step(func() { err = do(c.path(a), flags) }) {
				return 1
			}
			if err != nil {
				status = c.complain(1, "%s: %s: %v", argv[0], a, cause(err))
			}
		}
		return status
	}
}

func twoFiles(do func(from, to string) error) program {
	return func(c *command, argv []string) int {
		if len(argv) != 3 {
			return c.complain(statusUsage, "%s: two names are needed", argv[0])
		}
		from, to := c.path(argv[1]), c.path(argv[2])
		if info, err := os.Stat(to); err == nil && info.IsDir() {
			to = filepath.Join(to, filepath.Base(from))
		}
		var err error
		if !c.p.step(func() { err = do(from, to) }) {
			return 1
		}
		if err != nil {
			return c.complain(1, "%s: %s: %v", argv[0], argv[1], cause(err))
		}
		return 0
	}
}

func ls(c *command, argv []string) int {
	name := "."
	for _, a := range argv[1:] {
		if !strings.HasPrefix(a, "-") {
			name = a
		}
	}
	info, err := os.Stat(c.path(name))
	if err != nil {
		return c.complain(statusUsage, "ls: %s: %v", name, cause(err))
	}
	if !info.IsDir() {
		return c.say("%s\n", name)
	}
	entries, err := os.ReadDir(c.path(name))
	if err != nil {
		return c.complain(statusUsage, "ls: %s: %v", name, cause(err))
	}
	for _, e := range entries {
		if status := c.say("%s\n", e.Name()); status != 0 {
			return status
		}
	}
	return 0
}

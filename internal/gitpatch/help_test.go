package gitpatch

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a file of a tree in memory.
type node struct {
	mode Mode
	data string
}

// files is a tree in memory.
type files map[string]node

func file(data string) node    { return node{Regular, data} }
func script(data string) node  { return node{Executable, data} }
func link(target string) node  { return node{Symlink, target} }
func (n node) file() File      { return fileOf(n.mode, strings.NewReader(n.data)) }
func texts(data string) files  { return files{"a": file(data)} }
func numbers(n int) []string   { return slices.Collect(lines(n)) }
func joined(l []string) string { return strings.Join(l, "\n") + "\n" }

func lines(n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			if !yield(fmt.Sprint("line ", i)) {
				return
			}
		}
	}
}

func fileOf(mode Mode, r *strings.Reader) File {
	if mode == Absent {
		return File{}
	}
	return File{Mode: mode, Size: r.Size(), Open: func() io.Reader { return io.NewSectionReader(r, 0, r.Size()) }}
}

// changes returns what differs, in the order of git.
func changes(from, to files) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		all := maps.Clone(from)
		maps.Copy(all, to)
		for _, path := range slices.Sorted(maps.Keys(all)) {
			a, b := from[path], to[path]
			if a != b && !yield(Change{Path: path, Old: a.file(), New: b.file(), Same: a.data == b.data && (a.mode == b.mode || a.mode|b.mode == Executable)}, nil) {
				return
			}
		}
	}
}

// output returns what Write writes.
func output(t testing.TB, from, to files, o Options) (string, Summary) {
	t.Helper()
	var out bytes.Buffer
	sum, err := Write(t.Context(), &out, changes(from, to), o)
	must(t, err)
	return out.String(), sum
}

func patchOf(t testing.TB, from, to files) string {
	t.Helper()
	text, _ := output(t, from, to, Options{})
	return text
}

func statOf(t testing.TB, from, to files) string {
	t.Helper()
	text, _ := output(t, from, to, Options{Format: holdfast.DiffStat})
	return text
}

// unquote reads a name as git writes it.
func unquote(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	if len(s) < 2 || !strings.HasSuffix(s, `"`) {
		return "", fmt.Errorf("no quote at the end of %q", s)
	}
	var out []byte
	for s = s[1 : len(s)-1]; s != ""; {
		switch {
		case s[0] == '"':
			return "", fmt.Errorf("a bare quote in front of %q", s)
		case s[0] != '\\':
			out, s = append(out, s[0]), s[1:]
		case len(s) > 1 && strings.IndexByte(escapes, s[1]) >= 0:
			out, s = append(out, escaped[strings.IndexByte(escapes, s[1])]), s[2:]
		default:
			if len(s) < 4 {
				return "", fmt.Errorf("a cut escape: %q", s)
			}
			n, err := strconv.ParseUint(s[1:4], 8, 8)
			if err != nil {
				return "", err
			}
			out, s = append(out, byte(n)), s[4:]
		}
	}
	return string(out), nil
}

// decode reads the lines of a literal, up to an empty one, and returns its content and the lines after it.
func decode(text string) (data, rest string, err error) {
	head, rest, _ := strings.Cut(text, "\n")
	size, err := strconv.Atoi(strings.TrimPrefix(head, "literal "))
	if err != nil {
		return "", "", err
	}
	var packed []byte
	for {
		var line string
		if line, rest, _ = strings.Cut(rest, "\n"); line == "" {
			break
		}
		n := int(line[0]-'A') + 1
		if line[0] >= 'a' {
			n = int(line[0]-'a') + 27
		}
		if len(line) != 1+(n+3)/4*5 {
			return "", "", fmt.Errorf("a line of %d characters for %d bytes", len(line), n)
		}
		var four []byte
		for i := 1; i < len(line); i += 5 {
			v := uint64(0)
			for _, c := range []byte(line[i : i+5]) {
				v = v*85 + uint64(strings.IndexByte(digits, c))
			}
			four = binary.BigEndian.AppendUint32(four, uint32(v))
		}
		packed = append(packed, four[:n]...)
	}
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", "", err
	}
	out, err := io.ReadAll(z)
	if err == nil && len(out) != size {
		err = fmt.Errorf("%d bytes instead of %d", len(out), size)
	}
	return string(out), rest, err
}

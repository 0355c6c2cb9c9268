package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

func TestRead(t *testing.T) {
	w := newWorld(t)
	w.put("f", "one\ntwo\r\nthree")
	w.put("empty", "")
	w.put("bin", "a\x00b")
	w.put("latin", "caf\xe9\n")
	w.put("only", "\n\n")
	for input, want := range map[string]string{
		`{"file_path":"f"}`:                        "     1\tone\n     2\ttwo\n     3\tthree\n",
		`{"file_path":"f","offset":2,"limit":1}`:   "     2\ttwo\n[lines 2 to 2; there are more: read on with offset 3]\n",
		`{"file_path":"f","offset":3}`:             "     3\tthree\n",
		`{"file_path":"f","limit":3}`:              "     1\tone\n     2\ttwo\n     3\tthree\n",
		`{"file_path":"f","offset":0,"limit":1}`:   "     1\tone\n[lines 1 to 1; there are more: read on with offset 2]\n",
		`{"file_path":"empty"}`:                    "(the file is empty)",
		`{"file_path":"latin"}`:                    "     1\tcaf\uFFFD\n",
		`{"file_path":"only"}`:                     "     1\t\n     2\t\n",
		`{"file_path":"/workspace/f","offset":3}`:  "     3\tthree\n",
		`{"file_path":"./empty/../f","offset": 3}`: "     3\tthree\n",
	} {
		if got := w.good("Read", input); got != want {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
	w.refused("Read", `{"file_path":"none"}`, `"none": no such file or directory`)
	w.refused("Read", `{"file_path":"bin"}`, "binary file")
	w.refused("Read", `{"file_path":"."}`, "directory")
	w.refused("Read", `{"file_path":"f","offset":9}`, "has 3 lines, so there is no line 9")
	w.refused("Read", `{"file_path":""}`, `"file_path" is empty`)
	res, err := w.call("Read", `{"file_path":"none"}`)
	if err != nil || strings.Contains(res.Content, "file.read") {
		t.Errorf("operations are named in %q (%v)", res.Content, err)
	}
}

func TestReadLongFiles(t *testing.T) {
	w := newWorld(t)
	var b strings.Builder
	for i := 1; i <= 60_000; i++ {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", 30))
	}
	w.put("long", b.String()+"end")
	got := w.good("Read", `{"file_path":"long"}`)
	if n := strings.Count(got, "\n"); n != readLines+1 || !strings.HasSuffix(got, "[lines 1 to 2000; there are more: read on with offset 2001]\n") {
		t.Errorf("%d lines, ending %q", n, got[len(got)-80:])
	}
	got = w.good("Read", `{"file_path":"long","offset":59999}`)
	if !strings.HasPrefix(got, " 59999\tline 59999 x") || !strings.HasSuffix(got, " 60001\tend\n") {
		t.Errorf("the end of a long file: %q", got)
	}
	w.refused("Read", `{"file_path":"long","offset":70000}`, "has 60001 lines")
	got = w.good("Read", `{"file_path":"long","limit":20000}`)
	if len(got) > readBytes+10_000 || !strings.Contains(got, "read on with offset") {
		t.Errorf("%d bytes of a long file", len(got))
	}
	// Characters of two bytes, cut between pieces of the transfer and at the width.
	w.put("wide", "a"+strings.Repeat("é", 300_000)+"\nnext\n")
	got = w.good("Read", `{"file_path":"wide"}`)
	want := "     1\ta" + strings.Repeat("é", readWidth-1) + "… [line cut at 2000 characters]\n     2\tnext\n"
	if got != want {
		t.Errorf("a wide line: %d bytes, ending %q", len(got), got[len(got)-60:])
	}
	w.put("just", strings.Repeat("é", readWidth)+"\n")
	if got := w.good("Read", `{"file_path":"just"}`); strings.Contains(got, "cut") {
		t.Error("a line of 2000 characters was cut")
	}
}

func TestWrite(t *testing.T) {
	w := newWorld(t)
	if got := w.good("Write", `{"file_path":"d/e/f","content":"a\nb"}`); got != "Created d/e/f: 2 lines, 3 bytes" {
		t.Errorf("create: %q", got)
	}
	if got := w.good("Write", `{"file_path":"d/e/f","content":"é\n"}`); got != "Replaced d/e/f: 1 line, 3 bytes" {
		t.Errorf("replace: %q", got)
	}
	if got := w.get("d/e/f"); got != "é\n" {
		t.Errorf("content %q", got)
	}
	large := strings.Repeat("0123456789\n", 100_000)
	w.good("Write", `{"file_path":"large","content":`+quote(large)+`}`)
	if w.get("large") != large {
		t.Error("a large file came out otherwise")
	}
	w.good("Write", `{"file_path":"empty","content":""}`)
	w.refused("Write", `{"file_path":"d","content":"x"}`, "directory")
	w.refused("Write", `{"file_path":"d/e/f/g","content":"x"}`, "not a directory")
}

func TestEdit(t *testing.T) {
	w := newWorld(t)
	w.put("f", "one\ntwo\ntwo\n")
	got := w.good("Edit", `{"file_path":"f","old_string":"one","new_string":"1"}`)
	if got != "Replaced 1 occurrence in f:\n     1\t1\n     2\ttwo\n     3\ttwo" {
		t.Errorf("edit: %q", got)
	}
	w.refused("Edit", `{"file_path":"f","old_string":"two","new_string":"2"}`, "occurs 2 times")
	w.refused("Edit", `{"file_path":"f","old_string":"two","new_string":"2"}`, "give more of the surrounding text")
	w.refused("Edit", `{"file_path":"f","old_string":"three","new_string":"3"}`, "0 occurrences")
	w.refused("Edit", `{"file_path":"none","old_string":"a","new_string":"b"}`, `"none": no such file`)
	if got := w.good("Edit", `{"file_path":"f","old_string":"two","new_string":"2","replace_all":true}`); !strings.HasPrefix(got, "Replaced 2 occurrences") {
		t.Errorf("edit all: %q", got)
	}
	if got := w.get("f"); got != "1\n2\n2\n" {
		t.Errorf("content %q", got)
	}
}

// TestHZ4_SameCallActsOnce: a call repeated with its id, over a new pipe, gives
// the same answer and does not act again.
func TestHZ4_SameCallActsOnce(t *testing.T) {
	w := newWorld(t)
	w.put("f", "a")
	for _, c := range []struct{ name, input string }{
		{"Edit", `{"file_path":"f","old_string":"a","new_string":"aa"}`},
		{"Write", `{"file_path":"new","content":"x"}`},
		{"Bash", `{"command":"echo ran; echo x >> log"}`},
	} {
		id := newCall(t)
		one, err := w.callAs(t.Context(), id, c.name, c.input)
		if err != nil || one.IsError {
			t.Fatalf("%s: %+v (%v)", c.name, one, err)
		}
		w.connect()
		two, err := w.callAs(t.Context(), id, c.name, c.input)
		if err != nil || two.Content != one.Content {
			t.Errorf("%s again: %+v (%v), first %+v", c.name, two, err, one)
		}
		// Of a turn that was cancelled the outcome is still fetched.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		three, err := w.callAs(ctx, id, c.name, c.input)
		if err != nil || three.Content != one.Content || three.Outcome != holdfast.ExitOK {
			t.Errorf("%s after a cancel: %+v (%v)", c.name, three, err)
		}
		res, err := w.callAs(t.Context(), id, c.name, strings.Replace(c.input, "x", "y", 1))
		if c.name != "Edit" && (err != nil || !res.IsError) {
			t.Errorf("%s with other arguments: %+v (%v)", c.name, res, err)
		}
	}
	if got := w.get("f"); got != "aa" {
		t.Errorf("the edit acted again: %q", got)
	}
	if got := w.get("log"); got != "x\n" {
		t.Errorf("the command ran again: %q", got)
	}
}

func TestGlob(t *testing.T) {
	w := newWorld(t)
	if got := w.good("Glob", `{"pattern":"**"}`); got != "No files found" {
		t.Errorf("in an empty workspace: %q", got)
	}
	w.put("a.go", "")
	// Two files may be made within one tick of the file system's clock.
	earlier := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(w.dir, "workspace", "a.go"), earlier, earlier); err != nil {
		t.Fatal(err)
	}
	w.put("d/b.go", "")
	w.put("d/c.txt", "")
	w.put("new\nline.md", "")
	got := strings.Split(strings.TrimSpace(w.good("Glob", `{"pattern":"**/*.go"}`)), "\n")
	if len(got) != 2 || !strings.HasSuffix(got[0], "/d/b.go") || !strings.HasSuffix(got[1], "/a.go") {
		t.Errorf("glob: %q", got)
	}
	if got := w.good("Glob", `{"pattern":"*.txt","path":"d"}`); !strings.HasSuffix(got, "/d/c.txt\n") {
		t.Errorf("below a path: %q", got)
	}
	if got := w.good("Glob", `{"pattern":"*.md"}`); strings.Count(got, "\n") != 1 || !strings.Contains(got, `new\nline.md"`) {
		t.Errorf("a name with a newline: %q", got)
	}
	// What Glob shows, Read takes.
	w.put("plain.md", "text")
	path := strings.Split(w.good("Glob", `{"pattern":"plain.md"}`), "\n")[0]
	if got := w.good("Read", `{"file_path":`+quote(path)+`}`); got != "     1\ttext\n" {
		t.Errorf("read of %s: %q", path, got)
	}
	for i := range globLimit {
		w.put(fmt.Sprintf("many/%d", i), "")
	}
	w.put("many/last", "")
	got = strings.Split(w.good("Glob", `{"pattern":"many/*"}`), "\n")
	if len(got) != globLimit+2 || !strings.Contains(got[globLimit], "there are more") {
		t.Errorf("%d lines of a glob that finds many", len(got))
	}
	w.refused("Glob", `{"pattern":"[a"}`, "not closed")
	w.refused("Glob", `{"pattern":"*","path":"none"}`, `"none"`)
}

func TestGrep(t *testing.T) {
	w := newWorld(t)
	w.put("a.go", "one\ntwo needle\nthree\nfour\nfive\nsix needle\n")
	w.put("d/b.py", "# Needle\n")
	w.put("c.txt", "nothing\n")
	for input, want := range map[string]string{
		`{"pattern":"needle"}`:                                               "a.go\n",
		`{"pattern":"needle","-i":true}`:                                     "a.go\nd/b.py\n",
		`{"pattern":"needle","-i":true,"type":"py"}`:                         "d/b.py\n",
		`{"pattern":"needle","-i":true,"glob":"*.go"}`:                       "a.go\n",
		`{"pattern":"needle","output_mode":"count"}`:                         "a.go:2\n",
		`{"pattern":"needle","output_mode":"content"}`:                       "a.go:2:two needle\na.go:6:six needle\n",
		`{"pattern":"needle","output_mode":"content","-n":false}`:            "a.go:two needle\na.go:six needle\n",
		`{"pattern":"needle","output_mode":"content","-C":1}`:                "a.go-1-one\na.go:2:two needle\na.go-3-three\n--\na.go-5-five\na.go:6:six needle\n",
		`{"pattern":"needle","output_mode":"content","-C":1,"-A":0}`:         "a.go-1-one\na.go:2:two needle\n--\na.go-5-five\na.go:6:six needle\n",
		`{"pattern":"needle","output_mode":"content","head_limit":1}`:        "a.go:2:two needle\n[there is more: narrow the search or raise head_limit]\n",
		`{"pattern":"three.*five","multiline":true,"output_mode":"content"}`: "a.go:3:three\na.go:4:four\na.go:5:five\n",
		`{"pattern":"absent"}`:                                               "No matches found",
		`{"pattern":"needle","path":"d"}`:                                    "No matches found",
	} {
		if got := strings.ReplaceAll(w.good("Grep", input), "/workspace/", ""); trimRoot(got) != want {
			t.Errorf("%s:\n got %q\nwant %q", input, trimRoot(got), want)
		}
	}
	w.refused("Grep", `{"pattern":"(a"}`, "missing closing )")
	w.refused("Grep", `{"pattern":"a","type":"cobol"}`, `"type" must be one of c, cpp`)
	w.refused("Grep", `{"pattern":"a","type":"go","glob":"*"}`, "together")
	w.refused("Grep", `{"pattern":"a","output_mode":"lines"}`, "files_with_matches, content, count")
	w.refused("Grep", `{"pattern":"a","path":"none"}`, `"none"`)
}

// trimRoot takes the directories of the mem driver's box off paths.
func trimRoot(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if j := strings.Index(l, "/workspace/"); j >= 0 {
			lines[i] = l[j+len("/workspace/"):]
		}
	}
	return strings.Join(lines, "\n")
}

func TestLS(t *testing.T) {
	w := newWorld(t)
	if got := w.good("LS", `{}`); got != "(the directory is empty)\n" {
		t.Errorf("an empty directory: %q", got)
	}
	w.put("b.txt", "123")
	w.put("a/x", "")
	w.put("c.tmp", "")
	if got := w.good("LS", `{}`); got != "a/\nb.txt (3 bytes)\nc.tmp (0 bytes)\n" {
		t.Errorf("list: %q", got)
	}
	if got := w.good("LS", `{"path":".","ignore":["*.tmp","a"]}`); got != "b.txt (3 bytes)\n" {
		t.Errorf("with names left out: %q", got)
	}
	if got := w.good("LS", `{"path":"a","ignore":["x"]}`); got != "(every entry is ignored)\n" {
		t.Errorf("with all names left out: %q", got)
	}
	w.refused("LS", `{"path":"none"}`, `"none"`)
	w.refused("LS", `{"path":"b.txt"}`, "not a directory")
	w.refused("LS", `{"ignore":["["]}`, "not a valid pattern")
	w.refused("LS", `{"ignore":[1]}`, "entry 0 is a number")
	for i := range listLimit {
		w.put(fmt.Sprintf("many/%04d", i), "")
	}
	w.put("many/z", "")
	if got := w.good("LS", `{"path":"many"}`); !strings.Contains(got, "only the first 1000 entries") {
		t.Errorf("a large directory ends %q", got[len(got)-80:])
	}
}

// TestResultsAreText: whatever files hold, results are valid UTF-8 without NUL.
func TestResultsAreText(t *testing.T) {
	w := newWorld(t)
	w.put("f", "\xff\xfe needle\n")
	for _, c := range [][2]string{
		{"Read", `{"file_path":"f"}`},
		{"Grep", `{"pattern":"needle","output_mode":"content"}`},
		{"Edit", `{"file_path":"f","old_string":"needle","new_string":"pin"}`},
		{"Bash", `{"command":"cat f; printf 'a\\0b'"}`},
	} {
		got := w.good(c[0], c[1])
		if raw, _ := json.Marshal(got); strings.Contains(string(raw), `\u0000`) || strings.ToValidUTF8(got, "") != got {
			t.Errorf("%s: %q", c[0], got)
		}
	}
}

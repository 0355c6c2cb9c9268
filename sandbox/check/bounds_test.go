package check

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// bombs are programs that repeat one piece: the text before it, the piece, and the text
// after it.
var bombs = map[string][3]string{
	"subshell": {"", "(", ""}, "subshell closed": {"", "(", ")"}, "block": {"", "{ ", ""}, "substitution": {"", "$(", ""},
	"quoted substitution": {"", `"$(`, ""}, "backtick": {"", "`", ""}, "backtick escaped": {"`", "\\`", ""}, "expansion": {"", "${a:-", ""},
	"arithmetic": {"((", "(", ""}, "arithmetic expansion": {"", "$((", ""}, "old arithmetic": {"", "$[", ""}, "subscript": {"", "a[", ""},
	"subscript expansion": {"echo ", "${a[", ""}, "not in arithmetic": {"((", "!", ""}, "minus": {"((", "- ", ""}, "complement": {"((", "~", ""},
	"ternary": {"((", "a?", ""}, "ternary whole": {"((", "a?a:", "a))"}, "assignment": {"((", "a=", "1))"}, "power": {"((", "a**", "1))"},
	"sum": {"((a", "+a", "))"}, "comma": {"((a", ",a", "))"}, "let": {"let ", "a=", "1"}, "slice": {"a ${a:", "a?", "}"},
	"test not": {"[[ ", "! ", " a ]]"}, "test and": {"[[ a", "&&a", " ]]"}, "test or": {"[[ a", "||a", " ]]"}, "test paren": {"[[ ", "( ", ""},
	"and": {"a", "&&a", ""}, "or": {"a", "||a", ""}, "pipe": {"a", "|a", ""}, "pipe both": {"a", "|&a", ""}, "time": {"", "time ", "a"},
	"coproc": {"", "coproc ", "a"}, "elif": {"if a;then a;", "elif a;then a;", "fi"}, "function": {"", "f()", "{ a;}"}, "function body": {"", "f() ", "a"},
	"function word": {"", "function a ", ""}, "if": {"", "if ", ""}, "while": {"", "while ", ""}, "for": {"", "for a do ", ""}, "case": {"", "case a in a) ", ""},
	"select": {"", "select a do ", ""}, "process substitution": {"a ", "<(a ", ""}, "braces": {"a ", "{a,", ""}, "array": {"a=(", "(", ""}, "extglob": {"a ", "@(", ""},
	"semicolons": {"", "a;", ""}, "background": {"", "a&", ""}, "words": {"a ", "a ", ""}, "redirections": {"a ", ">a ", ""}, "assignments": {"", "a= ", "a"},
	"heredocs": {"a ", "<<a ", ""}, "variables": {"a ", "$a", ""}, "env": {"", "env ", "a"}, "xargs": {"", "xargs ", "a"}, "sudo": {"", "sudo -u a ", "a"},
	"find": {"find ", "-exec find ", ""}, "cd": {"", "cd a;", ""}, "cd long": {"cd /" + strings.Repeat("b", 4000) + ";", "cd a;", ""}, "segments": {"cat ", "a/", ""},
	"wildcards": {"cat ", "a/*/", ""}, "many wildcards": {"cd " + strings.Repeat("b/", 2000) + ";cat ", "* ", ""}, "braced words": {"cat ", "{a,b}{a,b}{a,b} ", ""},
	"colons": {"cat ", ":/a", ""}, "eval": {"", "eval ", "a"}, "shells": {"", "sh -c ", "a"}, "escapes": {"a ", "\\", "a"}, "quotes": {"a ", "'a'", ""},
	"loops around words": {strings.Repeat("while a;do ", 400), "a;", strings.Repeat("done;", 400)}, "functions around words": {strings.Repeat("f() { ", 300), "a;", strings.Repeat("};", 300)},
	"double brackets": {"", "[[ ", ""}, "comments": {"", "#\n", ""}, "dollar quotes": {"a ", "$'a'", ""}, "nested heredoc": {"", "cat <<a\n$(", ""},
}

// bomb is a bomb of about size bytes that repeats its middle at most deep times.
func bomb(of [3]string, size, deep int) string {
	n := max(0, min((size-len(of[0])-len(of[2]))/len(of[1]), deep))
	tail := of[2]
	if tail == ")" {
		n /= 2
		tail = strings.Repeat(tail, n)
	}
	return of[0] + strings.Repeat(of[1], n) + tail
}

func bounded(t testing.TB) *Checker {
	t.Helper()
	c, err := New(Settings{DeniedCommands: []string{"curl"}, DeniedPaths: []string{"/etc/", "/root/.ssh/"}, AllowedReadPaths: []string{"/workspace/"}}, Options{Home: "/home/agent"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestBombsAreRefusedBeforeTheParser runs in a process of its own for each size: a
// stack overflow ends the process.
func TestBombsAreRefusedBeforeTheParser(t *testing.T) {
	if os.Getenv("CHECK_BOMBS") != "" {
		explode(t)
		return
	}
	for _, size := range []string{"65536", "1000000", "10000000"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBombsAreRefusedBeforeTheParser$", "-test.v")
		// With Go's default of 100, up to half of the peak is garbage, more or less of it with each run.
		cmd.Env = append(os.Environ(), "CHECK_BOMBS="+size, "GOGC=20")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("bombs of %s bytes: %v\n%s", size, err, out[:min(len(out), 4000)])
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "bombs:") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}

// explode checks every bomb of one size, and the cost of the worst.
func explode(t *testing.T) {
	var size int
	fmt.Sscan(os.Getenv("CHECK_BOMBS"), &size)
	c := bounded(t)
	for name, of := range bombs {
		text := bomb(of, size, size)
		v := c.Command(text)
		if size > maxProgram && (v.Allowed || v.Code != CodeUnparsable || !strings.Contains(v.Reason, "bytes long")) {
			t.Errorf("%s of %d bytes: %+v", name, len(text), v)
		}
		if size > maxProgram {
			continue
		}
		// The largest inputs within the bounds reach every walk.
		for _, deep := range []int{maxOpeners / 4, maxOpeners / 2, maxOpeners} {
			c.Command(bomb(of, maxProgram, deep))
		}
	}
	peak := peakMB(t)
	t.Logf("bombs: %d of %d bytes, peak %d MB", len(bombs), size, peak)
	if peak > 80 && !raced {
		t.Errorf("the peak is %d MB", peak)
	}
}

func peakMB(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n := 0
			fmt.Sscan(kb, &n)
			return n / 1024
		}
	}
	return 0
}

// TestOrdinaryProgramsAreWithinTheBounds: long programs with little nesting are read.
func TestOrdinaryProgramsAreWithinTheBounds(t *testing.T) {
	for name, text := range map[string]string{
		"heredoc":   "cat > f <<'EOF'\n" + strings.Repeat("a line of text, (of a file)\n", 900) + "EOF\n",
		"pipeline":  "cat a" + strings.Repeat(" | grep a", 100),
		"chain":     "true" + strings.Repeat(" && true", 400),
		"list":      strings.Repeat("echo a\n", 5000),
		"functions": strings.Repeat("f() { if true; then echo a; fi; }\n", 150),
		"nested":    strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100),
	} {
		if an, err := Analyze(text, "/workspace", "/home/agent"); err != nil || len(an.Opaque) > 0 {
			t.Errorf("%s: %v, %+v", name, err, an)
		}
	}
}

// TestDeepTreesAreRefused: a chain needs no opener to make a deep tree.
func TestDeepTreesAreRefused(t *testing.T) {
	for _, text := range []string{"a" + strings.Repeat("|a", 20_000), "((a" + strings.Repeat("+a", 20_000) + "))"} {
		if an, err := Analyze(text, "/workspace", ""); err == nil || !strings.Contains(err.Error(), "too deep") {
			t.Errorf("%.10s: %+v, %v", text, an != nil, err)
		}
	}
}

// TestNestedProgramsShareTheirBounds: nested programs do not get around the bounds.
func TestNestedProgramsShareTheirBounds(t *testing.T) {
	inner := "bash -c '" + strings.Repeat("(", 900) + "true" + strings.Repeat(")", 900) + "'\n"
	one, err := Analyze(inner, "/workspace", "")
	if err != nil || len(one.Opaque) > 0 {
		t.Fatalf("one program: %v, %+v", err, one)
	}
	// sh is read in two grammars, and both count.
	an, err := Analyze(strings.Replace(inner, "bash", "sh", 1), "/workspace", "")
	if err != nil || !slices.ContainsFunc(an.Opaque, func(o Opaque) bool { return o.Code == CodeUnparsable && strings.Contains(o.Reason, "together") }) {
		t.Errorf("%v, %+v", err, an)
	}
}

// TestAnAnalysisEndsWithItsTime: loops look at the clock.
func TestAnAnalysisEndsWithItsTime(t *testing.T) {
	why := errors.New("took too long to judge")
	ended := func() error { return why }
	text := strings.Repeat("echo a\n", 1000)
	if _, err := AnalyzeWithin(ended, text, "/workspace", ""); !errors.Is(err, why) {
		t.Errorf("AnalyzeWithin: %v", err)
	}
	if v := bounded(t).CommandWithin(ended, text); v.Allowed || !strings.Contains(v.Reason, why.Error()) {
		t.Errorf("CommandWithin: %+v", v)
	}
	// Reading is not the only step that takes time.
	an, err := Analyze("cat"+strings.Repeat(" a/b", 1000), "/workspace", "")
	if err != nil {
		t.Fatal(err)
	}
	an.left.ended = ended
	var got error
	func() {
		defer func() {
			if over, ok := recover().(exceeded); ok {
				got = over.err
			}
		}()
		bounded(t).judgePaths(an)
	}()
	if !errors.Is(got, why) {
		t.Errorf("judgePaths went on: %v", got)
	}
}

// TestLongPathsAreRefusedFirst: no path over PATH_MAX is followed.
func TestLongPathsAreRefusedFirst(t *testing.T) {
	c := bounded(t)
	long := "/workspace/" + strings.Repeat("a/", 5_000_000)
	if v := c.Path(long, Read); v.Allowed || v.Code != CodePathInvalid {
		t.Errorf("%+v", v.Code)
	}
	if _, err := Normalize(Host{}, long); err == nil {
		t.Error("Normalize took it")
	}
	if v := c.Path("/workspace/"+strings.Repeat("a/", 2000)+"f", Read); !v.Allowed {
		t.Errorf("a path of 4,000 bytes: %+v", v)
	}
}

// TestTooLongSaysWhatToDo: the refusal has a hint.
func TestTooLongSaysWhatToDo(t *testing.T) {
	_, err := Analyze(strings.Repeat("(", 150_000), "/workspace", "")
	if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
}

func FuzzDepth(f *testing.F) {
	for _, of := range bombs {
		f.Add(of[0], of[1], of[2], uint16(200))
	}
	c := bounded(f)
	f.Fuzz(func(t *testing.T, front, middle, back string, n uint16) {
		if len(middle)*int(n) > 4*maxProgram {
			t.Skip()
		}
		text := front + strings.Repeat(middle, int(n)) + back
		// An analysis asks once in 64 steps whether it has to end.
		asked := 0
		v := c.CommandWithin(func() error { asked++; return nil }, text)
		if most := 2 * (maxWork + maxSteps) / 64; asked > most {
			t.Errorf("%d steps for %d bytes", 64*asked, len(text))
		}
		if v.Allowed && len(text) > maxProgram {
			t.Errorf("%d bytes were allowed", len(text))
		}
	})
}

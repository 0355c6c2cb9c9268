package judging

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// die closes a file as a crash does.
func die(t testing.TB, f *File) {
	t.Helper()
	if err := f.Close(false); err != nil {
		t.Fatal(err)
	}
}

// TestTwoUncleanEndsInARow counts ends at which a call was being judged.
func TestTwoUncleanEndsInARow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions", "judging")
	bad, good := MarkOf("session", "turn", "Bash", "bad"), MarkOf("session", "turn", "Bash", "good")
	f := open(t, path)
	f.Begin(good).End()
	f.Begin(bad)
	die(t, f)
	f = open(t, path)
	if f.Refuses(bad) {
		t.Fatal("refused after one end")
	}
	f.Begin(bad)
	f.Begin(good)
	die(t, f)
	f = open(t, path)
	if !f.Refuses(bad) || f.Refuses(good) {
		t.Fatalf("refused: bad %t, good %t", f.Refuses(bad), f.Refuses(good))
	}
	// The call was not being judged at this crash, so its count starts from zero.
	die(t, f)
	f = open(t, path)
	if f.Refuses(bad) {
		t.Error("an end at which it was not judged still counts")
	}
	die(t, f)
}

// TestAStartThatIsCutCountsOnce: a server that dies while it starts has judged nothing.
func TestAStartThatIsCutCountsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judging")
	m := MarkOf("a")
	f := open(t, path)
	f.Begin(m)
	die(t, f)
	for range 3 {
		die(t, open(t, path))
	}
	f = open(t, path)
	defer die(t, f)
	if f.Refuses(m) {
		t.Error("ends before the call was judged again were counted")
	}
}

// TestACleanEndStartsOver and TestWaitingIsNotJudging show the two cases that do not
// count.
func TestACleanEndStartsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judging")
	m := MarkOf("a")
	for _, clean := range []bool{false, true, false} {
		f := open(t, path)
		f.Begin(m)
		if err := f.Close(clean); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, path)
	defer die(t, f)
	if f.Refuses(m) {
		t.Error("the ends before and after a clean one were added up")
	}
}

func TestWaitingIsNotJudging(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judging")
	m := MarkOf("a")
	for range 4 {
		f := open(t, path)
		if f.Refuses(m) {
			t.Fatal("it was waiting for a person")
		}
		j := f.Begin(m)
		j.Pause()
		die(t, f)
	}
	for range 2 {
		f := open(t, path)
		f.Begin(m).Pause()()
		die(t, f)
	}
	f := open(t, path)
	defer die(t, f)
	if !f.Refuses(m) {
		t.Error("what is judged after the answer does not count")
	}
}

// TestManyMarks: places are reused, and the size of the file is bounded.
func TestManyMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judging")
	f := open(t, path)
	for i := range 1000 {
		f.Begin(MarkOf(fmt.Sprint(i))).End()
	}
	if f.end != recordSize {
		t.Errorf("%d bytes for one call at a time", f.end)
	}
	var open []*Judgement
	for i := range 100 {
		open = append(open, f.Begin(MarkOf(fmt.Sprint(i))))
	}
	for _, j := range open {
		j.End()
	}
	die(t, f)
	counts, err := read(path)
	if err != nil || len(counts) != 0 {
		t.Errorf("%v, %v", counts, err)
	}
}

// TestACrashWithManyCalls: of a hundred calls under judgement at an end only the one
// that is also being judged at the next end is refused.
func TestACrashWithManyCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judging")
	f := open(t, path)
	for i := range 100 {
		f.Begin(MarkOf(fmt.Sprint(i)))
	}
	die(t, f)
	f = open(t, path)
	var all []*Judgement
	for i := range 100 {
		if f.Refuses(MarkOf(fmt.Sprint(i))) {
			t.Fatalf("%d is refused after one end", i)
		}
		all = append(all, f.Begin(MarkOf(fmt.Sprint(i))))
	}
	for i, j := range all {
		if i != 42 {
			j.End()
		}
	}
	die(t, f)
	f = open(t, path)
	defer die(t, f)
	for i := range 100 {
		if f.Refuses(MarkOf(fmt.Sprint(i))) != (i == 42) {
			t.Errorf("%d: refused %t", i, i != 42)
		}
	}
}

// TestABrokenFileCountsNothing: an incomplete record is ignored.
func TestABrokenFileCountsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "judging")
	if err := os.WriteFile(path, []byte("not a file of marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	defer die(t, f)
	if len(f.refused) != 0 {
		t.Errorf("%v", f.refused)
	}
	var none *File
	none.Begin(MarkOf("a")).End()
	if none.Refuses(MarkOf("a")) || none.Close(true) != nil {
		t.Error("a nil file remembers")
	}
}

func BenchmarkJudgement(b *testing.B) {
	f := open(b, filepath.Join(b.TempDir(), "judging"))
	defer die(b, f)
	for b.Loop() {
		f.Begin(MarkOf("0190-session", "0190-turn", "Bash", `{"command":"true"}`)).End()
	}
}

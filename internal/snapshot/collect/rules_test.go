package collect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// point describes a checkpoint of a test: its session, scope and age in days, and what is special.
type point struct {
	session, scope string
	days           int
	special        string
}

// facts returns the facts of checkpoints with ids c0, c1, …
func factsOf(points []point) Facts {
	f := Facts{
		Now: time.Unix(1_700_000_000, 0), Restoring: map[holdfast.CheckpointID]bool{},
		Packs: map[int64]Pack{1: {Pack: journal.Pack{Number: 1, Bytes: 1000}}},
	}
	for i, p := range points {
		var cp Checkpoint
		cp.ID, cp.Session, cp.Scope = holdfast.CheckpointID(fmt.Sprint("c", i)), holdfast.SessionID(p.session), holdfast.BoxID(p.scope)
		cp.CreatedAt = f.Now.AddDate(0, 0, -p.days)
		cp.Held, cp.Abandoned, cp.Lost = p.special == "held", p.special == "abandoned", p.special == "lost"
		cp.Own = 10
		if p.special != "home" {
			cp.Workspace = "root"
		}
		f.Restoring[cp.ID] = p.special == "restoring"
		f.Checkpoints = append(f.Checkpoints, cp)
	}
	return f
}

func many(n, days int) (out []point) {
	for range n {
		out = append(out, point{"s", "w", days, ""})
	}
	return out
}

func TestRetain(t *testing.T) {
	for name, c := range map[string]struct {
		points []point
		rules  Rules
		want   string
	}{
		"the defaults keep a hundred":         {many(103, 0), Rules{}, "c0 count, c1 count, c2 count"},
		"for thirty days":                     {append(many(1, 31), many(2, 29)...), Rules{}, "c0 age"},
		"no limit":                            {many(200, 1000), Rules{Count: -1, Age: -1}, ""},
		"the newest stays however old":        {many(3, 1000), Rules{}, "c0 age, c1 age"},
		"count is of each scope":              {[]point{{"s", "w", 0, ""}, {"s", "v", 0, ""}, {"s", "w", 0, ""}}, Rules{Count: 1}, "c0 count"},
		"each session's newest stays":         {[]point{{"r", "w", 0, ""}, {"r", "w", 0, ""}, {"s", "w", 0, ""}, {"s", "w", 0, ""}}, Rules{Count: 1}, "c0 count, c2 count"},
		"so does the newest not abandoned":    {[]point{{"s", "w", 0, ""}, {"s", "w", 0, ""}, {"s", "w", 0, "abandoned"}, {"s", "w", 0, "abandoned"}}, Rules{Count: 1}, "c0 count, c2 count"},
		"and the newest that is whole":        {[]point{{"s", "w", 0, ""}, {"s", "w", 0, ""}, {"s", "w", 0, "lost"}, {"s", "w", 0, "lost"}}, Rules{Count: 1}, "c0 count, c2 count"},
		"and the newest that has the files":   {[]point{{"s", "w", 99, ""}, {"s", "w", 99, ""}, {"s", "w", 99, "home"}, {"s", "w", 0, "home"}}, Rules{Count: 1}, "c0 count, c2 count"},
		"held ones stay":                      {[]point{{"s", "w", 99, "held"}, {"s", "w", 99, ""}, {"s", "w", 99, "restoring"}, {"s", "w", 0, ""}}, Rules{Count: 1}, "c1 count"},
		"under the size nothing goes":         {many(4, 0), Rules{Bytes: 40}, ""},
		"above it the oldest go":              {many(4, 0), Rules{Bytes: 21}, "c0 size, c1 size"},
		"but not the last":                    {many(3, 0), Rules{Bytes: 1}, "c0 size, c1 size"},
		"what other rules drop is of no size": {many(4, 0), Rules{Bytes: 21, Count: 2}, "c0 count, c1 count"},
	} {
		got := ""
		for _, d := range Retain(factsOf(c.points), c.rules) {
			if got != "" {
				got += ", "
			}
			got += fmt.Sprintf("%s %s", d.Checkpoint, d.Reason)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRetainKeepsWhatCanBeResumed: whatever the rules, each session and each scope keeps its newest
// checkpoint, its newest usable one and the newest of these with files, and everything held; and a second plan drops nothing more.
//
// ASH-24, WS-R82.
func TestRetainKeepsWhatCanBeResumed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []point
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			points = append(points, point{
				rapid.SampledFrom([]string{"r", "s", "t"}).Draw(t, "session"), rapid.SampledFrom([]string{"v", "w"}).Draw(t, "scope"),
				rapid.IntRange(0, 60).Draw(t, "days"), rapid.SampledFrom([]string{"", "", "", "held", "abandoned", "lost", "restoring", "home"}).Draw(t, "special"),
			})
		}
		f := factsOf(points)
		r := Rules{Count: rapid.IntRange(-1, 4).Draw(t, "count"), Age: time.Duration(rapid.IntRange(-1, 50).Draw(t, "age")) * 24 * time.Hour, Bytes: rapid.Int64Range(0, 100).Draw(t, "bytes")}
		gone := map[holdfast.CheckpointID]bool{}
		for _, d := range Retain(f, r) {
			gone[d.Checkpoint] = true
		}
		seen := map[string]bool{}
		for i, p := range slices.Backward(points) {
			cp := f.Checkpoints[i]
			keys := []string{"session " + p.session, "scope " + p.scope}
			if !cp.Abandoned && !cp.Lost {
				keys = append(keys, "usable session "+p.session, "usable scope "+p.scope)
				if cp.Workspace != "" {
					keys = append(keys, "files of session "+p.session, "files of scope "+p.scope)
				}
			}
			for _, key := range keys {
				if !seen[key] && gone[cp.ID] {
					t.Fatalf("%s, the newest of %s, is dropped", cp.ID, key)
				}
				seen[key] = true
			}
			if gone[cp.ID] && (cp.Held || f.Restoring[cp.ID]) {
				t.Fatalf("%s is dropped, %+v", cp.ID, p)
			}
		}
		f.Checkpoints = slices.DeleteFunc(f.Checkpoints, func(cp Checkpoint) bool { return gone[cp.ID] })
		if again := Retain(f, r); len(again) > 0 {
			t.Fatalf("a second plan drops %v", again)
		}
	})
}

// TestMergesOfTenThousandTurns: with a pack from each of 10,000 turns and a collection now and then, a scope
// never needs more than 100 packs after one, and each byte is copied a few times.
func TestMergesOfTenThousandTurns(t *testing.T) {
	fam := &family{scopes: []*scope{{id: "w"}}}
	for _, every := range []int{1, 20, 1000} {
		s := &survey{}
		number, written, copied, most := int64(0), int64(0), int64(0), 0
		add := func(bytes int64) {
			number++
			s.packs = append(s.packs, usage{Pack: Pack{Pack: journal.Pack{Number: number, Bytes: bytes}}, total: bytes, live: bytes, scopes: []int{0}})
		}
		for turn := range 10_000 {
			bytes := int64(4<<10 + turn%7*(6<<10))
			written += bytes
			add(bytes)
			if turn%every != every-1 {
				continue
			}
			for _, m := range s.merges(fam, false) {
				copied += m.Live
				s.packs = slices.DeleteFunc(s.packs, func(u usage) bool { return slices.Contains(m.Packs, u.Number) })
				add(m.Live)
			}
			most = max(most, len(s.packs))
		}
		t.Logf("collected every %d turns: at most %d packs, %.1f bytes copied for each written", every, most, float64(copied)/float64(written))
		if most > 100 || copied > 6*written {
			t.Errorf("collected every %d turns: at most %d packs, %d bytes copied for %d written", every, most, copied, written)
		}
	}
}

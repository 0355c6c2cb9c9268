package holdfast_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

const someUUID = "01890a5d-ac96-774b-bcce-b302099a8057"

// parsers are all ways a string becomes an identifier, each rendering back what
// it accepted.
var parsers = map[string]func(string) (string, error){
	"session": func(s string) (string, error) { v, err := holdfast.Parse[holdfast.SessionID](s); return string(v), err },
	"turn":    func(s string) (string, error) { v, err := holdfast.Parse[holdfast.TurnID](s); return string(v), err },
	"call":    func(s string) (string, error) { v, err := holdfast.Parse[holdfast.CallID](s); return string(v), err },
	"agent":   func(s string) (string, error) { v, err := holdfast.Parse[holdfast.AgentName](s); return string(v), err },
	"child":   func(s string) (string, error) { v, err := holdfast.Parse[holdfast.ChildID](s); return string(v), err },
	"version": func(s string) (string, error) { v, err := holdfast.Parse[holdfast.VersionID](s); return string(v), err },
	"slug":    func(s string) (string, error) { v, err := holdfast.Parse[holdfast.Slug](s); return string(v), err },
	"box":     func(s string) (string, error) { v, err := holdfast.Parse[holdfast.BoxID](s); return string(v), err },
}

// WS-R1.
func TestIdentifiersAccepted(t *testing.T) {
	version := "sha256:" + strings.Repeat("0f", 32)
	for _, c := range []struct{ parser, in, want string }{
		{"session", someUUID, someUUID},
		{"session", strings.ToUpper(someUUID), someUUID},
		{"session", "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"},
		{"turn", someUUID, someUUID},
		{"call", someUUID, someUUID},
		{"agent", "a", "a"},
		{"agent", "my-agent_v1.2", "my-agent_v1.2"},
		{"agent", strings.Repeat("a", 64), strings.Repeat("a", 64)},
		{"child", "a", "a"},
		{"child", "-Agent_a1-2", "-Agent_a1-2"},
		{"child", strings.Repeat("Z", 64), strings.Repeat("Z", 64)},
		{"version", version, version},
		{"slug", "a", "a"},
		{"slug", "team-7", "team-7"},
		{"slug", strings.Repeat("9", 63), strings.Repeat("9", 63)},
		{"box", "s-" + someUUID, "s-" + someUUID},
		{"box", "w-team-7", "w-team-7"},
		{"box", "t-team-7", "t-team-7"},
	} {
		if got, err := parsers[c.parser](c.in); err != nil || got != c.want {
			t.Errorf("%s %q: %q, %v; want %q", c.parser, c.in, got, err, c.want)
		}
	}
}

// WS-R1, WS-R2, WS-R6, WS-R8, WS-P20.
func TestIdentifiersRefused(t *testing.T) {
	everywhere := []string{
		"", " ", ".", "..", "/", "../x", "a/b", "a\x00b", "a\n", " " + someUUID, someUUID + " ", "ä", "Ａ",
		"a b", "%2e%2e", "a/../b", `a\b`, "\xff\xfe", strings.Repeat("a", 10_000), "a_/",
	}
	lower := []string{"-", "A", "-a", "a-", "_a"} // a child agent may have these
	more := map[string][]string{
		"session": {someUUID[:35], someUUID + "0", strings.ReplaceAll(someUUID, "-", ""), "{" + someUUID + "}", "urn:uuid:" + someUUID, strings.Replace(someUUID, "-", "_", 1), "g" + someUUID[1:]},
		"child":   {someUUID + someUUID, "a.b", "a~"},
		"agent":   {"a..b", ".a", "a.", strings.Repeat("a", 65), "a~", "Agent", "a:b"},
		"version": {strings.Repeat("0f", 32), "sha256:" + strings.Repeat("0F", 32), "sha256:" + strings.Repeat("0", 63), "sha512:" + strings.Repeat("0f", 32), "sha256:" + strings.Repeat("0g", 32)},
		"slug":    {"a_b", "_default", "a.b", strings.Repeat("a", 64), "Team"},
		"box":     {"s-", "w-", "s-" + strings.ToUpper(someUUID), "x-" + someUUID, someUUID, "w-Team", "t-", "t-Team", "s-../etc", "S-" + someUUID},
	}
	for name, parse := range parsers {
		refused := slices.Concat(everywhere, more[name])
		if name != "child" {
			refused = append(refused, lower...)
		}
		for _, in := range refused {
			got, err := parse(in)
			if err == nil {
				t.Errorf("%s: %q is accepted as %q", name, in, got)
				continue
			}
			if holdfast.KindOf(err) != holdfast.KindInvalid || holdfast.HintOf(err) == "" {
				t.Errorf("%s: %q is refused with %s and hint %q", name, in, holdfast.KindOf(err), holdfast.HintOf(err))
			}
			if got != "" || !strings.Contains(err.Error(), holdfast.Quote(in)) {
				t.Errorf("%s: refusal of %q does not quote it: %v (value %q)", name, in, err, got)
			}
		}
	}
}

// WS-R123.
func TestSessionBox(t *testing.T) {
	id, err := holdfast.Parse[holdfast.SessionID](someUUID)
	if err != nil {
		t.Fatal(err)
	}
	if box, err := holdfast.Parse[holdfast.BoxID](string(id.Box())); err != nil || box != "s-"+someUUID {
		t.Fatalf("%s, %v", box, err)
	}
}

func TestNewUUID(t *testing.T) {
	now := time.UnixMilli(0x01890a5dac96)
	got, err := holdfast.NewUUID(now, bytes.NewReader(bytes.Repeat([]byte{0xff}, 10)))
	if err != nil || got != "01890a5d-ac96-7fff-bfff-ffffffffffff" {
		t.Fatalf("%s, %v", got, err)
	}
	seen, last := map[string]bool{}, ""
	for i := range 1000 {
		id, err := holdfast.NewUUID(now.Add(time.Duration(i)*time.Millisecond), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := holdfast.Parse[holdfast.SessionID](id); err != nil || string(back) != id {
			t.Fatalf("%s does not parse: %v", id, err)
		}
		if seen[id] || id <= last {
			t.Fatalf("%s repeats, or sorts before %s", id, last)
		}
		seen[id], last = true, id
	}
	if _, err := holdfast.NewUUID(now, iotest{}); holdfast.KindOf(err) != holdfast.KindInternal || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("without randomness: %v", err)
	}
}

type iotest struct{}

func (iotest) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func fuzzParser(f *testing.F, name string, safe string, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Add("../../etc/passwd")
	f.Add("a\x00b")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parsers[name](s)
		if err != nil {
			if got != "" || holdfast.KindOf(err) != holdfast.KindInvalid || holdfast.HintOf(err) == "" {
				t.Fatalf("%q: %q, %v", s, got, err)
			}
			return
		}
		if again, err := parsers[name](got); err != nil || again != got {
			t.Fatalf("%q gives %q, which gives %q, %v", s, got, again, err)
		}
		if len(got) == 0 || len(got) > 80 || strings.Trim(got, safe) != "" || strings.Contains(got, "..") {
			t.Fatalf("%q gives %q, which is no safe name", s, got)
		}
	})
}

const (
	hexes = "0123456789abcdef"
	alnum = "abcdefghijklmnopqrstuvwxyz0123456789"
)

func FuzzParseSessionID(f *testing.F) { fuzzParser(f, "session", hexes+"-", someUUID) }
func FuzzParseTurnID(f *testing.F)    { fuzzParser(f, "turn", hexes+"-", strings.ToUpper(someUUID)) }
func FuzzParseCallID(f *testing.F)    { fuzzParser(f, "call", hexes+"-", someUUID) }
func FuzzParseAgentName(f *testing.F) {
	fuzzParser(f, "agent", alnum+"-_.", "default", "a.b-c_d", "a..b")
}

func FuzzParseChildID(f *testing.F) {
	fuzzParser(f, "child", alnum+strings.ToUpper(alnum)+"-_", "a1", "Agent_Bb", "a/b")
}
func FuzzParseSlug(f *testing.F) { fuzzParser(f, "slug", alnum+"-", "team-7", "-a") }

func FuzzParseVersionID(f *testing.F) {
	fuzzParser(f, "version", hexes+"sha:", "sha256:"+strings.Repeat("0f", 32))
}

func FuzzParseBoxID(f *testing.F) {
	fuzzParser(f, "box", alnum+"-", "s-"+someUUID, "w-team-7", "w-")
}

// budget: func TestTampering 110: the table of everything that can be done to an export

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
)

func TestASoundExportVerifies(t *testing.T) {
	for _, n := range []int{1, 2, 9, 10, 11, 600} {
		data, m := signedChain(t, n)
		rep, err := verify(data, Options{})
		if err != nil {
			t.Fatalf("%d records: %v", n, err)
		}
		if rep.Records != int64(n) || rep.Chains != 1 || rep.First != in7(1) || rep.Last != in7(int64(n)) || rep.Hash != m.tip.Hash.String() || rep.Heads != int64(len(m.heads)) {
			t.Errorf("%d records: %+v", n, rep)
		}
		if !rep.FirstTime.Equal(start) || n > 1 && !rep.LastTime.Equal(start.Add(time.Duration(n-1)*time.Second)) {
			t.Errorf("times %v %v", rep.FirstTime, rep.LastTime)
		}
	}
}

// TestARecordIsItsBytes: whoever has the file and SHA-256 can check it; the format
// is in docs/format/audit.md.
func TestARecordIsItsBytes(t *testing.T) {
	r := Link{}.Next(Entry{Time: start, Type: holdfast.EventToolDenied, Session: "s", Seq: 3, Turn: "t", By: "key 1f", Data: []byte("{\"by\":\n\"a <b>\"}")})
	const want = `{"n":1,"prev":"0000000000000000000000000000000000000000000000000000000000000000","time":"2026-01-02T03:04:05.678Z",` +
		`"type":"tool.denied","session_id":"s","seq":3,"turn_id":"t","by":"key 1f","data":{"by":"a <b>"}`
	if string(r.Body) != want || r.Hash != sha256.Sum256([]byte(want)) {
		t.Fatalf("body %s", r.Body)
	}
	chained := Link{Place: in7(0)}.Next(Entry{Time: start, Type: holdfast.EventToolDenied, Data: []byte("{}")})
	if !strings.HasPrefix(string(chained.Body), `{"chain":7,"n":1,"prev":"0000`) {
		t.Fatalf("body %s", chained.Body)
	}
	next := r.Next(Entry{Time: start, Type: "x\"é", Data: []byte("1")})
	if got := string(next.line(nil)); !strings.HasPrefix(got, `{"n":2,"prev":"`+r.Hash.String()+`"`) || !json.Valid([]byte(got)) {
		t.Fatalf("line %s", got)
	}
}

// TestTampering: what is done to an export is found, at its line.
func TestTampering(t *testing.T) {
	data, m := signedChain(t, 25)
	all := lines(data)
	// Header, 10 records, head, 10 records, head, 5 records, head, end.
	if len(all) != 30 {
		t.Fatalf("%d lines", len(all))
	}
	join := func(parts ...[]string) string {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(strings.Join(p, ""))
		}
		return b.String()
	}
	edit := func(line int, old, now string) string {
		c := append([]string{}, all...)
		c[line-1] = strings.Replace(c[line-1], old, now, 1)
		if c[line-1] == all[line-1] {
			t.Fatalf("line %d has no %q: %s", line, old, c[line-1])
		}
		return join(c)
	}
	resealed := func(line int, old, now string) string {
		c := append([]string{}, all...)
		body, _, _ := cut([]byte(strings.TrimSuffix(c[line-1], "\n")))
		body = []byte(strings.Replace(string(body), old, now, 1))
		c[line-1] = string(Record{Link: Link{Hash: sha256.Sum256(body)}, Body: body}.line(nil)) + "\n"
		return join(c)
	}
	other := NewLog(Config{Store: &memory{tip: m.tip, records: m.records}, Key: testKey(t, 2), Now: time.Now, Warn: func(error) {}})
	foreign, err := tryExport(t, other, everything)
	if err != nil {
		t.Fatal(err)
	}
	short, _ := signedChain(t, 15)
	for name, c := range map[string]struct {
		data   string
		line   int64
		reason string
	}{
		"a number":                            {edit(5, `"n":4`, `"n":5`), 5, "missing"},
		"the hash before":                     {edit(5, `"prev":"`+m.records[2].Hash.String()[:4], `"prev":"ffff`), 5, "does not follow"},
		"the time":                            {edit(5, "2026-01-02", "2025-01-02"), 5, "changed"},
		"the type":                            {edit(5, "tool.allowed", "tool.denied"), 5, "changed"},
		"the session":                         {edit(5, "01890a5d-ac96", "01890a5d-ac97"), 5, "changed"},
		"the sequence number":                 {edit(5, `"seq":10`, `"seq":11`), 5, "changed"},
		"the turn":                            {edit(5, "01890a5d-b21f", "01890a5d-b21e"), 5, "changed"},
		"who asked":                           {edit(5, "owner", "Owner"), 5, "changed"},
		"the payload":                         {edit(5, "Bash", "Read"), 5, "changed"},
		"a space":                             {edit(5, `"data":`, `"data": `), 5, "changed"},
		"the hash":                            {edit(5, m.records[3].Hash.String()[:4], "ffff"), 5, "changed"},
		"a hash in capitals":                  {edit(5, m.records[3].Hash.String(), strings.ToUpper(m.records[3].Hash.String())), 5, "no hash"},
		"a record sealed again":               {resealed(5, "Bash", "Read"), 6, "does not follow"},
		"the last record sealed again":        {resealed(28, "Bash", "Read"), 29, "signed head names"},
		"a line deleted in the middle":        {join(all[:4], all[5:]), 5, "missing: record 7:5 follows record 7:3"},
		"a line deleted before a head":        {join(all[:10], all[11:]), 11, "missing"},
		"the last record deleted":             {join(all[:27], all[28:]), 28, "missing: a signed head names record 7:25"},
		"and its head too":                    {join(all[:27], all[29:]), 28, "24 records, but its closing line says 25"},
		"and the closing line too":            {join(all[:27]), 28, "cut"},
		"cut behind a head":                   {join(all[:12]), 13, "cut"},
		"cut in a line":                       {join(all[:8], []string{all[8][:50]}), 9, "cut"},
		"the last byte":                       {strings.TrimSuffix(join(all), "\n"), 30, "cut"},
		"two swapped":                         {join(all[:4], all[5:6], all[4:5], all[6:]), 5, "missing"},
		"one twice":                           {join(all[:5], all[4:]), 6, "in the place of this record"},
		"an old head replayed":                {join(all[:23], all[11:12], all[24:]), 24, "not the one"},
		"an old head at the end":              {join(all[:28], all[11:12], all[29:]), 29, "not the one"},
		"a head deleted":                      {join(all[:11], all[12:]), 29, "another export"},
		"a chain's number":                    {edit(5, `"chain":7`, `"chain":8`), 5, "missing: the first record of chain 8 is 8:4"},
		"a chain's number taken away":         {edit(5, `"chain":7,`, ``), 5, "in the place of this record"},
		"a head's chain":                      {edit(12, `"chain":7`, `"chain":8`), 12, "signature"},
		"a head's chain taken away":           {edit(12, `"chain":7,`, ``), 12, "signature"},
		"a first record that names no chains": {resealed(2, "chain.heads", "tool.denied"), 2, "does not name the chains before"},
		"a first record's data":               {resealed(2, `"heads":[]`, `"heads":[{"chain":-1,"n":1,"hash":""}]`), 2, "in a way that is not valid"},
		"a first record that names its own chain": {
			resealed(2, `"heads":[]`, `"heads":[{"chain":7,"n":1,"hash":"`+strings.Repeat("0", 64)+`"}]`), 2, "names its own chain",
		},
		"a head's number":             {edit(12, `"head":10`, `"head":9`), 12, "signature"},
		"a head's time":               {edit(12, "2026-01-02T04", "2026-01-02T05"), 12, "signature"},
		"a head's signature":          {edit(12, `"signature":"`, `"signature":"00`), 12, "signature"},
		"a head with a space":         {edit(12, `"time":`, `"time": `), 12, "was changed or is not valid"},
		"the end of a shorter export": {join(all[:29], lines(short)[len(lines(short))-1:]), 30, "another export"},
		"the end of another key":      {join(all[:29], lines(foreign)[len(lines(foreign))-1:]), 30, "signature"},
		"the header's key":            {join(lines(foreign)[:1], all[1:]), 12, "signature"},
		"the header's first":          {edit(1, `"after":[]`, `"after":[{"chain":7,"n":1,"hash":"`+m.records[0].Hash.String()+`"}]`), 2, "in the place of this record"},
		"a header with a space":       {edit(1, `"after":`, `"after": `), 1, "header line was changed"},
		"a header without a list":     {edit(1, `"after":[]`, `"after":null`), 1, "header line was changed"},
		"a line more":                 {join(all, all[:1]), 31, "more bytes after"},
		"an empty line":               {join(all[:4], []string{"\n"}, all[4:]), 5, "not a record"},
		"another line":                {join(all[:4], []string{"{}\n"}, all[4:]), 5, "not a record"},
		"no more than the header":     {all[0], 2, "cut"},
		"a line that never ends":      {join(all[:4], []string{strings.Repeat("x", 2<<20)}), 5, "longer than"},
	} {
		_, err := verify([]byte(c.data), Options{})
		var f *Fault
		if !errors.As(err, &f) || f.Line != c.line || !strings.Contains(f.Reason, c.reason) {
			t.Errorf("%s: %v, want line %d: %q", name, err, c.line, c.reason)
		}
	}
}

func TestWhatIsNoExport(t *testing.T) {
	for _, data := range []string{"", "\n", "{}\n", "x", `{"audit":1`, `{"audit":4,"public_key":"","after":[]}` + "\n", `{"audit":"x"}` + "\n"} {
		if _, err := verify([]byte(data), Options{}); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%q: %v", data, err)
		}
	}
	broken := errors.New("broken pipe")
	data, _ := signedChain(t, 3)
	if _, err := Verify(io.MultiReader(bytes.NewReader(data[:200]), errReader{broken}), Options{}); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestAKeyThatIsGivenMustBeTheOne(t *testing.T) {
	data, _ := signedChain(t, 12)
	mine, err := ParsePublic(testKey(t, 1).Public())
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := verify(data, Options{Key: mine}); err != nil || !rep.KeyGiven {
		t.Fatal(rep, err)
	}
	other, err := ParsePublic(testKey(t, 2).Public())
	if err != nil {
		t.Fatal(err)
	}
	if f := fault(t, data, Options{Key: other}); f.Line != 1 || !strings.Contains(f.Reason, "another key") {
		t.Fatal(f)
	}
	for _, s := range []string{"", "00", strings.Repeat("x", 64), strings.ToUpper(testKey(t, 1).Public())} {
		if _, err := ParsePublic(s); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestAKnownHeadMustBeThere: an older export, or a chain that was written again with the
// key, is sound in itself; a head that was kept elsewhere shows the difference.
func TestAKnownHeadMustBeThere(t *testing.T) {
	data, m := signedChain(t, 25)
	for _, n := range []int64{1, 10, 25} {
		if _, err := verify(data, Options{Known: &m.records[n-1].Link}); err != nil {
			t.Errorf("record %d: %v", n, err)
		}
	}
	long, _ := signedChain(t, 30)
	for _, p := range []Place{in7(26), {Chain: 8, N: 1}, {N: 1}} {
		if f := fault(t, data, Options{Known: &Link{Place: p}}); !strings.Contains(f.Reason, "the export ends at 7:25") {
			t.Error(f)
		}
	}
	if f := fault(t, long, Options{Known: &Link{Place: in7(10), Hash: m.records[10].Hash}}); f.N != 10 || f.Line != 11 {
		t.Error(f)
	}
	part := export(t, testLog(t, m), in7(20))
	for _, l := range []*Link{&m.records[4].Link, {Place: Place{Chain: 6, N: 99}}} {
		if _, err := verify(part, Options{Known: l}); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Error(err)
		}
	}
	if rep, err := verify(part, Options{Known: &m.records[19].Link}); err != nil || rep.Records != 5 || rep.First != in7(21) {
		t.Error(rep, err)
	}
	if f := fault(t, part, Options{Known: &Link{Place: in7(20)}}); f.N != 20 {
		t.Error(f)
	}
	for _, p := range []Place{in7(26), in7(0), {Chain: 6, N: 1}, {Chain: 8, N: 1}, {N: 1}} {
		if _, err := testLog(t, m).Export(t.Context(), p.String()); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("after %s: %v", p, err)
		}
	}
	for _, s := range []string{"7:25:" + m.tip.Hash.String(), "25:" + m.tip.Hash.String()} {
		if l, ok := ParseKnown(s); !ok || l.Hash != m.tip.Hash || l.N != 25 || l.Chain != 7*int64(len(strings.Split(s, ":"))-2) {
			t.Errorf("%s: %v %v", s, l, ok)
		}
	}
	for _, s := range []string{"", "7:25", m.tip.Hash.String(), "7:25:" + m.tip.Hash.String()[1:], "x:" + m.tip.Hash.String(), "1:2:3:" + m.tip.Hash.String()} {
		if l, ok := ParseKnown(s); ok {
			t.Errorf("%q is the head %v", s, l)
		}
	}
}

// TestEditsAreFound expects that no edit of an export passes.
func TestEditsAreFound(t *testing.T) {
	linked, _ := linkedChains(t)
	single, _ := signedChain(t, 25)
	for _, data := range [][]byte{single, linked} {
		rapid.Check(t, func(t *rapid.T) {
			c := bytes.Clone(data)
			for range rapid.IntRange(1, 4).Draw(t, "edits") {
				at := rapid.IntRange(0, len(c)-1).Draw(t, "at")
				n := min(rapid.SampledFrom([]int{0, 1, 2, 30, 400}).Draw(t, "removed"), len(c)-at)
				put := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "put")
				if rapid.Bool().Draw(t, "copy") {
					from := rapid.IntRange(0, len(c)-1).Draw(t, "from")
					put = bytes.Clone(c[from:min(len(c), from+rapid.IntRange(0, 900).Draw(t, "length"))])
				}
				c = append(append(bytes.Clone(c[:at]), put...), c[at+n:]...)
				if len(c) == 0 {
					return
				}
			}
			if bytes.Equal(c, data) {
				return
			}
			if rep, err := verify(c, Options{}); err == nil {
				t.Fatalf("an edit passed: %+v\n%s", rep, c)
			}
		})
	}
}

// FuzzAuditVerify: whatever the file is, the verifier ends with a report of what is
// there, a fault within it, or an error of its kind.
func FuzzAuditVerify(f *testing.F) {
	data, _ := signedChain(f, 12)
	f.Add(data)
	f.Add(data[:len(data)/2])
	linked, _ := linkedChains(f)
	f.Add(linked)
	f.Add([]byte(`{"broken":"x","n":1}` + "\n"))
	f.Fuzz(func(t *testing.T, c []byte) {
		rep, err := verify(c, Options{})
		var fault *Fault
		switch {
		case err == nil:
			if !bytes.HasSuffix(c, []byte("\n")) || rep.Chains > rep.Records || rep.PublicKey == "" {
				t.Fatalf("%+v", rep)
			}
			if rep.PublicKey == testKey(t, 1).Public() && !bytes.Equal(c, data) && !bytes.Equal(c, linked) {
				t.Fatalf("not what was signed: %s", c)
			}
		case errors.As(err, &fault):
			if n := int64(bytes.Count(c, []byte("\n"))) + 1; fault.Line < 1 || fault.Line > n || fault.Reason == "" {
				t.Fatalf("%+v of %d lines", fault, n)
			}
		case !holdfast.IsKind(err, holdfast.KindInvalid):
			t.Fatal(err)
		}
	})
}

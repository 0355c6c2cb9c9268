package audit

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// linkedChains is the export of a log with the chains 0 to 7, of four starts: chain 0 of an old
// release, chains 2 and 5 with unsigned ends, and chain 7 of the server that exports.
func linkedChains(t testing.TB) ([]byte, *memory) {
	t.Helper()
	m := &memory{}
	m.add(3)
	m.head(t)
	m.add(1)
	for _, chain := range []int64{2, 5, 7} {
		m.begin(chain, m.tip)
		m.add(2)
		if chain == 5 {
			m.head(t)
			m.add(1)
		}
	}
	return export(t, testLog(t, m), everything), m
}

// TestChainsOfSeveralStarts verifies a log of several starts, and each part of it.
func TestChainsOfSeveralStarts(t *testing.T) {
	data, m := linkedChains(t)
	rep, err := verify(data, Options{})
	if err != nil || rep.Chains != 4 || rep.Records != 14 || rep.First != (Place{N: 1}) || rep.Last != in7(3) {
		t.Fatalf("%+v, %v", rep, err)
	}
	for i, r := range m.records {
		if _, err := verify(data, Options{Known: &r.Link}); err != nil {
			t.Errorf("known %s: %v", r, err)
		}
		rep, err := verify(export(t, testLog(t, m), r.Place), Options{Known: &r.Link})
		if err != nil || rep.Records != int64(len(m.records)-i-1) {
			t.Errorf("after %s: %+v, %v", r, rep, err)
		}
	}
}

// TestLinksAreChecked changes whole chains of a log and expects that the export of the server and
// the verifier both find the place.
func TestLinksAreChecked(t *testing.T) {
	at := func(p Place) func(r Record) bool {
		return func(r Record) bool { return r.Place == p }
	}
	for name, c := range map[string]struct {
		drop   func(r Record) bool
		add    func(m *memory)
		record string
		reason string
	}{
		"chain 0 dropped":               {func(r Record) bool { return r.Chain == 0 }, nil, "0:1", "missing: a signed head names record 0:3"},
		"chain 0 dropped with its head": {func(r Record) bool { return r.Chain == 0 }, func(m *memory) { m.heads = m.heads[1:] }, "0:4", "chain 0 is missing: record 2:1 names this record of it"},
		"a chain dropped":               {func(r Record) bool { return r.Chain == 2 }, nil, "2:3", "chain 2 is missing: record 5:1 names this record of it"},
		"an unsigned end cut off":       {at(Place{Chain: 5, N: 4}), nil, "5:4", "missing: record 7:1 names record 5:4, but chain 5 ends at 5:3"},
		"an unsigned chain cut":         {at(Place{Chain: 2, N: 3}), nil, "2:3", "missing: record 5:1 names record 2:3, but chain 2 ends at 2:2"},
		"a first record dropped":        {at(Place{Chain: 5, N: 1}), nil, "5:1", "missing: the first record of chain 5 is 5:2"},
		"the newest chain dropped":      {func(r Record) bool { return r.Chain == 7 }, nil, "7:1", "missing: a signed head names record 7:3"},
		"a record added to an end":      {nil, func(m *memory) { m.forge(m.end(2), "x") }, "2:4", "added to its chain: record 5:1 names record 2:3 as the last"},
		"a chain that nobody named":     {nil, func(m *memory) { m.forge(Link{Place: Place{Chain: 3}}, ChainHeads) }, "3:1", untied},
		"an end forged":                 {at(Place{Chain: 2, N: 3}), func(m *memory) { m.forge(m.end(2), "x") }, "2:3", "is not the one that record 5:1 names"},
		"a first record that names nothing": {
			func(r Record) bool { return r.Chain == 7 }, func(m *memory) { m.begin(7); m.heads = m.heads[:len(m.heads)-1]; m.head(t) }, "5:4", untied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := linkedChains(t)
			if c.drop != nil {
				m.drop(c.drop)
			}
			if c.add != nil {
				c.add(m)
			}
			data, err := tryExport(t, testLog(t, m), everything)
			if !holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(err.Error(), "record "+c.record+": ") || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("export: %v, want record %s: %s", err, c.record, c.reason)
			}
			// The same lines without the server's own verdict, and with a closing line.
			lines := lines(data)
			_, err = verify([]byte(strings.Join(lines[:len(lines)-1], "")+closing(t, lines[:len(lines)-1])), Options{})
			var f *Fault
			if !errors.As(err, &f) || (Place{Chain: f.Chain, N: f.N}).String() != c.record || !strings.Contains(f.Reason, c.reason) {
				t.Errorf("verify: %v, want record %s: %s", err, c.record, c.reason)
			}
		})
	}
}

// closing is the closing line that a server with the key would write after these lines.
func closing(t testing.TB, lines []string) string {
	t.Helper()
	n := int64(0)
	for _, line := range lines {
		if strings.HasPrefix(line, `{"n":`) || strings.HasPrefix(line, `{"chain":`) {
			n++
		}
	}
	sum := Record{Body: []byte(strings.Join(lines, ""))}.recomputed()
	return string(testKey(t, 1).signEnd(n, sum, start).line()) + "\n"
}

// drop removes records from the log.
func (m *memory) drop(which func(Record) bool) {
	var keep []Record
	for _, r := range m.records {
		if !which(r) {
			keep = append(keep, r)
		}
	}
	m.records = keep
}

// end returns the last record of a chain.
func (m *memory) end(chain int64) (l Link) {
	for _, r := range m.records {
		if r.Chain == chain {
			l = r.Link
		}
	}
	return l
}

// forge inserts a record after a link, as somebody without the key could.
func (m *memory) forge(after Link, typ holdfast.EventType) {
	forged := after.Next(Entry{Time: start, Type: typ, Data: []byte(`{"heads":[]}`)})
	for i, r := range m.records {
		if forged.Before(r.Place) {
			m.records = append(m.records[:i:i], append([]Record{forged}, m.records[i:]...)...)
			return
		}
	}
}

// sideBySide is the export of two servers that wrote at the same time: chains 2 and 3, which name
// signed places of each other, and chain 4 after them. change may change the log before.
func sideBySide(t testing.TB, change func(two, three *memory)) string {
	t.Helper()
	two, three := &memory{}, &memory{}
	two.begin(2)
	two.add(4)
	at2 := two.head(t)
	three.begin(3, at2)
	three.add(2)
	at3 := three.head(t)
	two.link(at3)
	two.add(3)
	three.link(two.head(t))
	three.add(1)
	if change != nil {
		change(two, three)
	}
	four := &memory{}
	four.begin(4, two.tip, three.tip)
	four.head(t)
	out := []string{string(newHeader(testKey(t, 1).Public(), nil, 0).line()) + "\n"}
	for _, m := range []*memory{two, three, four} {
		for _, r := range m.records {
			out = append(out, string(r.line(nil))+"\n")
			for _, h := range m.heads {
				if h.Place == r.Place {
					out = append(out, string(h.line())+"\n")
				}
			}
		}
	}
	return strings.Join(out, "") + closing(t, out)
}

// link appends a record that names places of other chains.
func (m *memory) link(found ...Link) {
	var names chainHeads
	for _, l := range found {
		names.Heads = append(names.Heads, l.line())
	}
	r := m.tip.Next(Entry{Time: start, Type: ChainHeads, Data: encode(names, nil)})
	m.tip, m.records = r.Link, append(m.records, r)
}

// TestChainsThatNameEachOther verifies the chains of two servers that ran side by side: no line of
// the format has to change for them.
func TestChainsThatNameEachOther(t *testing.T) {
	rep, err := verify([]byte(sideBySide(t, nil)), Options{})
	if err != nil || rep.Chains != 3 || rep.Heads != 4 {
		t.Fatalf("%+v, %v", rep, err)
	}
	for name, c := range map[string]struct {
		change func(two, three *memory)
		record string
		reason string
	}{
		"a named head is missing":           {func(two, _ *memory) { two.heads = two.heads[1:] }, "2:9", "added to its chain: record 3:1 names record 2:5 as the last"},
		"the named head ahead is missing":   {func(_, three *memory) { three.heads = nil }, "3:4", "follows one that another chain names as the last"},
		"the other chain was cut":           {func(_, three *memory) { three.records = three.records[:2] }, "3:3", "missing: record 4:1 names record 3:5, but chain 3 ends at 3:2"},
		"the other chain was cut, unsigned": {func(_, three *memory) { three.records, three.heads = three.records[:2], nil }, "3:3", "missing"},
		"the other chain is missing":        {func(_, three *memory) { three.records, three.heads = nil, nil }, "3:5", "chain 3 is missing: record 4:1 names"},
		"the other chain was written again": {func(_, three *memory) {
			three.records, three.heads, three.tip = nil, nil, Link{}
			three.begin(3)
			three.add(5)
		}, "3:3", "is not the one that record 2:6 names"},
		"a link to a record that never was":    {func(two, _ *memory) { two.link(Link{Place: Place{Chain: 3, N: 99}}) }, "3:6", "missing: record 2:10 names record 3:99"},
		"a link to a chain that never was":     {func(two, _ *memory) { two.link(Link{Place: Place{Chain: 8, N: 1}}) }, "8:1", "chain 8 is missing: record 2:10 names"},
		"two records name different hashes":    {func(two, _ *memory) { two.link(Link{Place: Place{Chain: 3, N: 3}}) }, "3:3", "is not the one that record 2:10 names"},
		"a link to an earlier, unsigned place": {func(two, three *memory) { three.link(two.records[2].Link) }, "2:9", "added to its chain: record 3:6 names record 2:3 as the last"},
	} {
		_, err := verify([]byte(sideBySide(t, c.change)), Options{})
		var f *Fault
		if !errors.As(err, &f) || (Place{Chain: f.Chain, N: f.N}).String() != c.record || !strings.Contains(f.Reason, c.reason) {
			t.Errorf("%s: %v, want record %s: %s", name, err, c.record, c.reason)
		}
	}
}

// TestAPartOfChainsSideBySide verifies an export that begins inside of two chains.
func TestAPartOfChainsSideBySide(t *testing.T) {
	whole := lines([]byte(sideBySide(t, nil)))
	var part, after []string
	place := map[string]int{`{"chain":2,`: 7, `{"chain":3,`: 4} // how many records of each chain are left out
	for _, line := range whole[1 : len(whole)-1] {
		chain := line[:min(len(line), len(`{"chain":2,`))]
		if left := place[chain]; left > 0 {
			if place[chain]--; left == 1 {
				_, h, _ := cut([]byte(strings.TrimSuffix(line, "\n")))
				after = append(after, `{"chain":`+chain[9:10]+`,"n":`+map[string]string{"2": "7", "3": "4"}[chain[9:10]]+`,"hash":"`+h.String()+`"}`)
			}
			continue
		}
		if strings.HasPrefix(line, `{"head":5,`) || strings.HasPrefix(line, `{"head":3,`) {
			continue
		}
		part = append(part, line)
	}
	part = append([]string{strings.Replace(whole[0], "[]", "["+strings.Join(after, ",")+"]", 1)}, part...)
	if rep, err := verify([]byte(strings.Join(part, "")+closing(t, part)), Options{}); err != nil || rep.Records != 4 {
		t.Fatalf("%+v, %v\n%s", rep, err, strings.Join(part, ""))
	}
}

// TestExportsOfVersion1 verifies files that a release wrote whose servers shared one chain.
func TestExportsOfVersion1(t *testing.T) {
	other := "export-1-after-10.jsonl"
	for name, records := range map[string]int64{"export-1.jsonl": 25, other: 15} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		rep, err := verify(data, Options{})
		if err != nil || rep.Records != records || rep.Chains != 1 || rep.Last != (Place{N: 25}) || rep.First.N != 26-records {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
		// A head that was kept elsewhere as N:HASH.
		known, ok := ParseKnown("25:" + rep.Hash)
		if _, err := verify(data, Options{Known: &known}); err != nil || !ok {
			t.Errorf("%s: the known head: %v", name, err)
		}
		all := lines(data)
		for what, edited := range map[string]string{
			"an edit":                 strings.Replace(string(data), "Bash", "Read", 1),
			"a record cut":            strings.Join(append(append([]string{}, all[:len(all)-3]...), all[len(all)-2:]...), ""),
			"a record and a head cut": strings.Join(append(append([]string{}, all[:len(all)-3]...), all[len(all)-1]), ""),
			"another end":             strings.Replace(string(data), `{"end":25`, `{"end":24`, 1),
			"the end of the other":    strings.Join(append(append([]string{}, all[:len(all)-1]...), endOf(t, map[bool]string{true: "export-1.jsonl", false: other}[name == other])), ""),
			"no end":                  strings.Join(all[:len(all)-1], ""),
			"a chain":                 strings.Replace(string(data), `{"n":25`, `{"chain":1,"n":25`, 1),
			"a later version":         strings.Replace(string(data), `{"audit":1`, `{"audit":2`, 1),
		} {
			if edited == string(data) {
				t.Fatalf("%s: %s changes nothing", name, what)
			}
			if rep, err := verify([]byte(edited), Options{}); err == nil {
				t.Errorf("%s: %s passed: %+v", name, what, rep)
			}
		}
	}
}

// endOf returns the closing line of a kept export.
func endOf(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	all := lines(data)
	return all[len(all)-1]
}

var update = flag.Bool("update", false, "rewrite the golden file")

// TestExportIsGolden compares an export with one that is kept, byte by byte: the format must not
// change without a new version.
func TestExportIsGolden(t *testing.T) {
	data, _ := linkedChains(t)
	name := filepath.Join("testdata", "export-2.jsonl")
	if *update {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(data, want) {
		t.Fatalf("the export changed (%v):\n%s", err, data)
	}
	if rep, err := verify([]byte(sideBySide(t, nil)), Options{}); err != nil {
		t.Fatalf("%+v, %v", rep, err)
	}
}

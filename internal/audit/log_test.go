package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestHeadsAreSignedBehindTheCommits: after so many records, after so long, and at
// the end; not while nothing happens.
func TestHeadsAreSignedBehindTheCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := testLog(t, m)
		m.add(2)
		l.Start(t.Context())
		pass := func(d time.Duration) { <-time.After(d) } // of the bubble
		grow := func(n int) {
			m.add(n)
			l.Wake(m.AuditTip().N)
			synctest.Wait()
		}
		expect := func(what string, n int64) {
			t.Helper()
			synctest.Wait()
			if got := m.signed(); got != n {
				t.Fatalf("%s: signed up to %d, want %d", what, got, n)
			}
		}
		expect("the first ones", 0)
		pass(SignAfter)
		expect("the first ones after a while", 3)
		grow(1)
		expect("one record", 3)
		pass(SignAfter - time.Millisecond)
		grow(1)
		expect("not yet", 3)
		pass(time.Millisecond)
		expect("after a while", 5)
		grow(SignEvery - 1)
		expect("almost many", 5)
		grow(1)
		expect("many", 5+SignEvery)
		pass(time.Hour)
		if len(m.heads) != 3 {
			t.Fatalf("%d heads while nothing happens", len(m.heads))
		}
		grow(1)
		l.Close()
		l.Close()
		expect("the end", 6+SignEvery)
	})
}

func TestAHeadThatCannotBeKeptIsSaid(t *testing.T) {
	m := newMemory()
	m.fail = errors.New("disk full")
	var warned []error
	l := NewLog(Config{Store: m, Key: testKey(t, 1), Now: time.Now, Warn: func(err error) { warned = append(warned, err) }})
	m.add(1)
	l.Start(t.Context())
	l.Close()
	if len(warned) != 1 {
		t.Fatal(warned)
	}
	if _, err := l.Head(t.Context()); !errors.Is(err, m.fail) {
		t.Fatal(err)
	}
}

// TestADamagedChainIsFound at the start and by the export, which hides nothing.
func TestADamagedChainIsFound(t *testing.T) {
	type test struct {
		change func(m *memory)
		check  string // what the start says; empty: it does not look there
		n      int64
	}
	for name, c := range map[string]test{
		"the end cut off":                        {func(m *memory) { m.records = m.records[:20] }, "was cut", 21},
		"all of it gone":                         {func(m *memory) { m.records = nil }, "was cut", 1},
		"cut, then grown":                        {func(m *memory) { m.records = m.records[:20]; m.add(3) }, "was changed", 21},
		"a next start after the end was cut off": {func(m *memory) { m.records = m.records[:20]; m.begin(9, m.tip) }, "was cut", 21},
		"a next start, then the end cut off": {func(m *memory) {
			m.add(1)
			m.begin(9, m.tip)
			m.records = append(m.records[:25:25], m.records[26:]...)
		}, "was cut or changed: the first record of chain 9 names record 7:26", 26},
		"a next start, then a record added": {func(m *memory) {
			old := m.tip
			m.begin(9, old)
			m.records = append(append(m.records[:25:25], old.Next(Entry{Time: start, Type: "x", Data: []byte("1")})), m.records[25:]...)
		}, "", 26},
		"the last one edited": {func(m *memory) {
			r := &m.records[24]
			r.Body = bytes.Replace(r.Body, []byte("Bash"), []byte("Read"), 1)
		}, "was changed", 25},
		"one edited": {func(m *memory) {
			r := &m.records[4]
			r.Body = bytes.Replace(r.Body, []byte("Bash"), []byte("Re\nd"), 1)
		}, "", 5},
		"one removed": {func(m *memory) { m.records = append(append([]Record{}, m.records[:4]...), m.records[5:]...) }, "", 5},
		"another key": {func(m *memory) { m.heads[len(m.heads)-1].Signature[0]++ }, "not signed with", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := signedChain(t, 25)
			l := testLog(t, m)
			if err := Check(t.Context(), m, testKey(t, 1)); err != nil {
				t.Fatal(err)
			}
			c.change(m)
			err := Check(t.Context(), m, testKey(t, 1))
			if c.check == "" && err != nil || c.check != "" && (!holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(err.Error(), c.check)) {
				t.Errorf("check: %v", err)
			}
			data, err := tryExport(t, l, everything)
			if c.n == 0 {
				fault(t, data, Options{})
				return
			}
			if !holdfast.IsKind(err, holdfast.KindInternal) || !bytes.Contains(data, []byte("\n"+`{"broken":`)) || bytes.Contains(data, []byte(`{"end":`)) {
				t.Errorf("export: %v\n%s", err, data)
			}
			if f := fault(t, data, Options{}); f.N != c.n {
				t.Errorf("%v, want record %d", f, c.n)
			}
		})
	}
	if err := Check(t.Context(), newMemory(), testKey(t, 1)); err != nil {
		t.Error(err)
	}
}

func TestAHeadOfTheAPI(t *testing.T) {
	_, m := signedChain(t, 12)
	w, err := testLog(t, m).Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var back holdfast.AuditHead
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	h, err := ParseHead(back)
	if err != nil || h.Link != m.tip {
		t.Fatal(h, err)
	}
	for _, change := range []func(*holdfast.AuditHead){
		func(h *holdfast.AuditHead) { h.N++ },
		func(h *holdfast.AuditHead) { h.Chain++ },
		func(h *holdfast.AuditHead) { h.Chain = 0 },
		func(h *holdfast.AuditHead) { h.Hash = strings.Repeat("0", 64) },
		func(h *holdfast.AuditHead) { h.Hash = "x" },
		func(h *holdfast.AuditHead) { h.Time = h.Time.Add(time.Second) },
		func(h *holdfast.AuditHead) { h.Signature = "00" },
		func(h *holdfast.AuditHead) { h.PublicKey = testKey(t, 2).Public() },
	} {
		c := back
		change(&c)
		if _, err := ParseHead(c); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

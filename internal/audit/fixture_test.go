package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a log in memory. The server's own chain is the one of tip.
type memory struct {
	mu      sync.Mutex
	tip     Link
	records []Record
	heads   []Head
	fail    error
}

// newMemory returns a log whose server has begun chain 7, the first of the log.
func newMemory() *memory {
	m := &memory{}
	m.begin(7)
	return m
}

// begin starts the next chain of the server, which names the given places.
func (m *memory) begin(chain int64, found ...Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Begin(chain, start, nil, found...)
	m.tip, m.records = r.Link, append(m.records, r)
}

// add appends records to the server's chain.
func (m *memory) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range n {
		r := m.tip.Next(Entry{
			Time: start.Add(time.Duration(m.tip.N) * time.Second), Type: holdfast.EventToolAllowed,
			Session: "01890a5d-ac96-774b-bcce-b302099a8057", Seq: m.tip.N + 7, Turn: "01890a5d-b21f-7c40-9d2e-5f6a7b8c9d0e",
			By: "owner", Data: fmt.Appendf(nil, `{"tool_use_id":"t%d","tool":"Bash","by":"mode"}`, m.tip.N),
		})
		m.tip, m.records = r.Link, append(m.records, r)
	}
}

// head adds a signed head of the server's newest record.
func (m *memory) head(t testing.TB) Link {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heads = append(m.heads, testKey(t, 1).Sign(m.tip, start))
	return m.tip
}

func (m *memory) AuditTip() Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tip
}

func (m *memory) AuditRecords(_ context.Context, after, upto Place, limit int) (out []Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if after.Before(r.Place) && !upto.Before(r.Place) && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, nil
}

func (m *memory) AuditHeads(_ context.Context, after, upto Place, limit int) (out []Head, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.heads {
		if after.Before(h.Place) && !upto.Before(h.Place) && len(out) < limit {
			out = append(out, h)
		}
	}
	return out, nil
}

func (m *memory) AuditEnd(_ context.Context, before int64) (end End, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.Chain < before {
			end, ok = End{Chain: r.Chain, Last: r}, true
		}
	}
	for _, h := range m.heads {
		if h.Chain < before && h.Chain >= end.Chain {
			if h.Chain > end.Chain {
				end.Last = Record{}
			}
			end.Chain, end.Head, ok = h.Chain, h, true
		}
	}
	return end, ok, nil
}

func (m *memory) PutAuditHead(_ context.Context, h Head) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, old := range m.heads {
		if old.Place == h.Place {
			return nil
		}
	}
	m.heads = append(m.heads, h)
	return nil
}

func (m *memory) signed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.heads) == 0 {
		return 0
	}
	return m.heads[len(m.heads)-1].N
}

// everything is the place before all records.
var everything Place

// in7 is a place in chain 7.
func in7(n int64) Place { return Place{Chain: 7, N: n} }

var start = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

func testKey(t testing.TB, b byte) Key {
	t.Helper()
	k, err := NewKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func testLog(t testing.TB, m *memory) *Log {
	t.Helper()
	return NewLog(Config{Store: m, Key: testKey(t, 1), Now: func() time.Time { return start.Add(time.Hour) }, Warn: func(err error) { t.Errorf("warned: %v", err) }})
}

// export is the export of a log, which must be sound.
func export(t testing.TB, l *Log, after Place) []byte {
	t.Helper()
	out, err := tryExport(t, l, after)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryExport(t testing.TB, l *Log, after Place) ([]byte, error) {
	t.Helper()
	write, err := l.Export(t.Context(), after.String())
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = write(t.Context(), &b)
	return b.Bytes(), err
}

// signedChain is an export of chain 7 with n records and a head after each tenth.
func signedChain(t testing.TB, n int) ([]byte, *memory) {
	t.Helper()
	m := newMemory()
	l := testLog(t, m)
	for i := 1; i < n; i++ {
		m.add(1)
		if i%10 == 9 {
			if _, err := l.Head(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return export(t, l, everything), m
}

func verify(data []byte, opt Options) (Report, error) { return Verify(bytes.NewReader(data), opt) }

// fault is the fault that a verifier finds.
func fault(t testing.TB, data []byte, opt Options) *Fault {
	t.Helper()
	_, err := verify(data, opt)
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("no fault but %v in\n%s", err, data)
	}
	return f
}

func lines(data []byte) []string {
	all := strings.SplitAfter(string(data), "\n")
	return all[:len(all)-1]
}

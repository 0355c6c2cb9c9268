package audit

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"
)

// renew begins the next chain of the server with the new key b, and signs its newest record with it.
func (m *memory) renew(t testing.TB, chain int64, b byte) {
	t.Helper()
	former, err := FormerHeads(t.Context(), m, chain)
	if err != nil {
		t.Fatal(err)
	}
	r := Begin(chain, start, &former, m.tip)
	m.tip, m.records = r.Link, append(m.records, r)
	m.add(2)
	m.heads = append(m.heads, testKey(t, b).Sign(m.tip, start))
}

func logWith(t testing.TB, m *memory, b byte) *Log {
	t.Helper()
	l := testLog(t, m)
	l.cfg.Key = testKey(t, b)
	return l
}

// renewed returns a log whose key was replaced twice: chains 0 to 7 have heads of key 1, chain 9 of key 2, and
// chains 11 and 12 of key 3.
func renewed(t testing.TB) *memory {
	t.Helper()
	_, m := linkedChains(t)
	m.renew(t, 9, 2)
	m.renew(t, 11, 3)
	m.begin(12, m.tip)
	m.add(1)
	m.heads = append(m.heads, testKey(t, 3).Sign(m.tip, start))
	return m
}

// TestAReplacedKeyIsNoDamage verifies a log whose key was replaced twice, and each part of it.
func TestAReplacedKeyIsNoDamage(t *testing.T) {
	m := renewed(t)
	if err := Check(t.Context(), m, testKey(t, 3)); err != nil {
		t.Error(err)
	}
	for _, k := range []byte{1, 2} {
		if err := Check(t.Context(), m, testKey(t, k)); err == nil || !strings.Contains(err.Error(), "not signed with audit.key") {
			t.Errorf("with key %d: %v", k, err)
		}
	}
	data := export(t, logWith(t, m, 3), everything)
	if !bytes.HasPrefix(data, []byte(`{"audit":3,`)) || !bytes.Contains(data[:300], []byte(`,"after":[],"key_since":11}`)) {
		t.Errorf("header %s", data[:300])
	}
	rep, err := verify(data, Options{Known: &m.records[2].Link})
	if err != nil || rep.KeySince != 11 || rep.FormerHeads != 4 || rep.Heads != 6 || rep.Chains != 7 || rep.PublicKey != testKey(t, 3).Public() {
		t.Errorf("%+v, %v", rep, err)
	}
	for _, r := range m.records {
		part := export(t, logWith(t, m, 3), r.Place)
		rep, err := verify(part, Options{})
		if err != nil || (rep.KeySince == 11) != (r.Chain < 11) || rep.KeySince == 0 && !bytes.HasPrefix(part, []byte(`{"audit":2,`)) {
			t.Errorf("after %s: %+v, %v", r.Place, rep, err)
		}
	}
	for i := range data {
		edited := bytes.Clone(data)
		edited[i] ^= 1
		if _, err := verify(edited, Options{Key: testKey(t, 3).private.Public().(ed25519.PublicKey)}); err == nil {
			t.Fatalf("byte %d changed in %.80s", i, edited[max(i-40, 0):])
		}
	}
}

// TestDamageBehindAReplacedKeyIsFound changes a log whose key was replaced, and expects that the export finds it.
func TestDamageBehindAReplacedKeyIsFound(t *testing.T) {
	m := renewed(t)
	damaged := func(what string) {
		t.Helper()
		data, err := tryExport(t, logWith(t, m, 3), everything)
		if _, verr := verify(data, Options{}); err == nil || verr == nil {
			t.Fatalf("%s: %v, %v", what, err, verr)
		}
	}
	for i := range m.records {
		r := &m.records[i]
		old := r.Body
		for b := 0; b < len(old); b += 5 {
			r.Body = bytes.Clone(old)
			r.Body[b] ^= 1
			damaged("a byte of record " + r.Place.String())
		}
		r.Body = old
		r.Hash[3] ^= 1
		damaged("the hash of record " + r.Place.String())
		r.Hash[3] ^= 1
	}
	for i := range m.heads {
		whole := slices.Clone(m.heads)
		h := &m.heads[i]
		h.Signature = bytes.Clone(h.Signature)
		for b := 0; b < len(h.Signature); b += 9 {
			h.Signature[b] ^= 1
			damaged("the signature of head " + h.Place.String())
			h.Signature[b] ^= 1
		}
		h.Hash[0] ^= 1
		damaged("the hash of head " + h.Place.String())
		h.Hash[0] ^= 1
		h.Time = h.Time.Add(1e6)
		damaged("the time of head " + h.Place.String())
		m.heads = slices.Delete(slices.Clone(whole), i, i+1)
		if at := whole[i].Place; at.Chain < 11 {
			damaged("no head " + at.String())
		}
		m.heads = whole
	}
	m.heads[0].Signature[0] ^= 1
	if err := Check(t.Context(), m, testKey(t, 3)); err == nil || !strings.Contains(err.Error(), "which are those of a former key, were changed") {
		t.Error(err)
	}
}

// TestAKeyReplacedWithoutARecordIsDamage, whatever the header of an export says.
func TestAKeyReplacedWithoutARecordIsDamage(t *testing.T) {
	_, m := linkedChains(t)
	m.begin(9, m.tip)
	m.add(1)
	m.heads = append(m.heads, testKey(t, 2).Sign(m.tip, start))
	if err := Check(t.Context(), m, testKey(t, 2)); err == nil || !strings.Contains(err.Error(), "not signed with audit.key") {
		t.Error(err)
	}
	data, err := tryExport(t, logWith(t, m, 2), everything)
	if f := fault(t, data, Options{}); err == nil || f.Reason != "the signature of the head is not valid" {
		t.Errorf("%v, %v", err, f)
	}
	forged := newHeader(testKey(t, 2).Public(), nil, 9).line()
	all := lines(data)
	all[0] = string(forged) + "\n"
	all = slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, `{"broken":`) })
	body := strings.Join(all, "")
	end := testKey(t, 2).signEnd(int64(len(m.records)), Record{Body: []byte(body)}.recomputed(), start).line()
	if f := fault(t, []byte(body+string(end)+"\n"), Options{}); !strings.Contains(f.Reason, "no record says that the key was replaced") || f.Chain != 9 {
		t.Error(f)
	}
}

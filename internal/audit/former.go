package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"math"
)

// Former describes the heads that were signed before a server got a new key. Nobody can check their signatures without
// the former public key, which may be lost with its private key. So the first record of the chain that begins with the
// new key contains a hash over all those heads: if one of them is changed, the hash differs.
type Former struct {
	// Heads is the number of signed heads in all earlier chains. SHA256 is the hash of the lines of these
	// heads in an export, in the order of the export.
	Heads  int64  `json:"heads"`
	SHA256 string `json:"sha256"`
}

// headSum computes a Former from heads that are added in the order of an export.
type headSum struct {
	n   int64
	sum hash.Hash
}

func newHeadSum() headSum { return headSum{sum: sha256.New()} }

func (s *headSum) add(h Head) {
	s.n++
	s.sum.Write(append(h.line(), '\n'))
}

func (s *headSum) former() Former {
	return Former{Heads: s.n, SHA256: hex.EncodeToString(s.sum.Sum(nil))}
}

// FormerHeads returns the description of all signed heads in the chains with a number below chain.
func FormerHeads(ctx context.Context, src Source, chain int64) (Former, error) {
	s := newHeadSum()
	upto := Place{Chain: chain}
	for after := (Place{}); ; {
		heads, err := src.AuditHeads(ctx, after, upto, page)
		if err != nil {
			return Former{}, err
		}
		for _, h := range heads {
			s.add(h)
			after = h.Place
		}
		if len(heads) < page {
			return s.former(), nil
		}
	}
}

// KeySince returns the number of the newest chain that began with a new key, or 0 if the key was never replaced. The heads
// of earlier chains are signed with a former key.
func KeySince(ctx context.Context, src Source) (int64, error) {
	for before := int64(math.MaxInt64); ; {
		end, ok, err := src.AuditEnd(ctx, before)
		if err != nil || !ok {
			return 0, err
		}
		former, err := formerOf(ctx, src, end.Chain)
		if err != nil || former != nil {
			return end.Chain, err
		}
		before = end.Chain
	}
}

// formerOf returns the description of the former key's heads in the first record of a chain; nil if the
// record has none.
func formerOf(ctx context.Context, src Source, chain int64) (*Former, error) {
	first, err := src.AuditRecords(ctx, Place{Chain: chain}, Place{Chain: chain, N: 1}, 1)
	if err != nil || chain == 0 || len(first) != 1 {
		return nil, err
	}
	var f fields
	if json.Unmarshal(first[0].line(nil), &f) != nil || f.Type != ChainHeads {
		return nil, nil
	}
	_, former, _ := named(f.Data)
	return former, nil
}

// former checks the heads that were signed with a former key, in the chains of an export before number since. since is
// 0 if all heads are signed with the key of the export.
type former struct {
	since int64
	met   bool
	// heads sums up the heads that were checked so far. whole is false if the export leaves out the first
	// heads of the log.
	heads headSum
	whole bool
}

func newFormer(since int64, after []Link) former {
	return former{since: since, heads: newHeadSum(), whole: len(after) == 0}
}

// begun compares said, the description of the earlier heads in the first record of a chain, with the heads
// that the export contains before that record.
func (f *former) begun(p Place, said *Former) error {
	if said == nil {
		return nil // the method end reports a description that is missing although the header says that the key is new
	}
	f.met = f.met || p.Chain == f.since
	if f.whole && *said != f.heads.former() {
		return faultAt(p, "a signed head of a chain before was changed, removed or added: "+
			"the record has the hash of %d heads of a former key, and it is another one", said.Heads)
	}
	return nil
}

// end returns a fault if the header says that a chain began with a new key, but no first record of that chain describes
// the heads that the former key signed.
func (f *former) end(at Link) error {
	if f.since == 0 || f.met {
		return nil
	}
	return faultAt(Place{Chain: f.since, N: 1}, "no record says that the key was replaced: "+
		"the header says that the heads before this chain are signed with a former key, and the last record is %s", at)
}

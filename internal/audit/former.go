package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"math"
)

// Former describes the heads that were signed before a server got a new key. Nobody can check their
// signatures without the former public key, which may be lost with its private key. So the first
// record of the chain that begins with the new key has their hash: a change of one still shows.
type Former struct {
	// Heads is the number of signed heads in all chains before, SHA256 the hash of their lines in an
	// export, in its order.
	Heads  int64  `json:"heads"`
	SHA256 string `json:"sha256"`
}

// headSum computes a Former from heads in the order of an export.
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

// FormerHeads returns the description of all heads in the chains before a chain.
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

// formerOf returns what the first record of a chain says of a former key; nil for nothing.
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

// former checks an export whose heads before the chain since were signed with a former key. since is 0
// if all are signed with the key of the export.
type former struct {
	since int64
	met   bool
	// heads are those that passed. whole is false if the export leaves heads out.
	heads headSum
	whole bool
}

func newFormer(since int64, after []Link) former {
	return former{since: since, heads: newHeadSum(), whole: len(after) == 0}
}

// begun checks what the first record of a chain says of the heads before it.
func (f *former) begun(p Place, said *Former) error {
	if said == nil {
		return nil // end reports it if the header names this chain
	}
	f.met = f.met || p.Chain == f.since
	if f.whole && *said != f.heads.former() {
		return faultAt(p, "a signed head of a chain before was changed, removed or added: "+
			"the record has the hash of %d heads of a former key, and it is another one", said.Heads)
	}
	return nil
}

// end checks that the chain since which the key signs was there.
func (f *former) end(at Link) error {
	if f.since == 0 || f.met {
		return nil
	}
	return faultAt(Place{Chain: f.since, N: 1}, "no record says that the key was replaced: "+
		"the header says that the heads before this chain are signed with a former key, and the last record is %s", at)
}

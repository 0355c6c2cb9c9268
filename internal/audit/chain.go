package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
)

// ChainHeads is the type of the records that name the last records of other chains. Each chain except chain 0
// begins with such a record.
const ChainHeads holdfast.EventType = "chain.heads"

// chainHeads is the data of a record of type ChainHeads. Each element of Heads names a record of another
// chain: the last record of an ended chain, or a record for which that chain has a signed head.
type chainHeads struct {
	Heads []linkLine `json:"heads"`
	// FormerKey is set only in the first record of a chain that begins with a new signing key. It describes
	// the heads signed before.
	FormerKey *Former `json:"former_key,omitempty"`
}

// Begin returns the first record of a new chain. found are the last records of the earlier chains that no
// other chain names yet, ordered by chain. former is nil unless the server has a new signing key.
func Begin(chain int64, at time.Time, former *Former, found ...Link) Record {
	heads := chainHeads{Heads: make([]linkLine, len(found)), FormerKey: former}
	for i, l := range found {
		heads.Heads[i] = l.line()
	}
	first := Link{Place: Place{Chain: chain}}
	return first.Next(Entry{Time: at, Type: ChainHeads, Data: encode(heads, nil)})
}

// named decodes the data of a record of type ChainHeads: the links that it names, and the description of the
// heads of a former key, nil if it has none.
func named(data []byte) ([]Link, *Former, bool) {
	var heads chainHeads
	if json.Unmarshal(data, &heads) != nil {
		return nil, nil, false
	}
	found, ok := links(heads.Heads)
	return found, heads.FormerKey, ok
}

// Fault is the first place at which an export does not verify, and the reason.
type Fault struct {
	// Line is the line of the export, from 1; Chain and N are the place of the record concerned.
	Line  int64 `json:"line"`
	Chain int64 `json:"chain"`
	N     int64 `json:"n"`
	// Reason says why the place does not verify, as a sentence without a full stop.
	Reason string `json:"reason"`
}

// Error implements error.
func (f *Fault) Error() string {
	return fmt.Sprintf("line %d: record %s: %s", f.Line, Place{Chain: f.Chain, N: f.N}, f.Reason)
}

func faultAt(p Place, format string, args ...any) error {
	return &Fault{Chain: p.Chain, N: p.N, Reason: fmt.Sprintf(format, args...)}
}

// chains checks the lines of an export as they pass: that each record continues its chain, that a record with the
// ends of other chains names them rightly, and that each signed head names the record before it. Its errors are Faults
// without a line. It needs memory for the ends of chains and for the signed places.
type chains struct {
	public ed25519.PublicKey
	after  []Link
	former former

	// at is the newest record that was checked, or at first the place after which the export begins. signed
	// is true if a signed head names that record, named if a record of another chain does.
	at            Link
	signed, named bool

	// ends are the last records of the chains before the current one, heads the records that signed heads
	// name. awaited are the records that other chains named and that the export has not reached yet. loose
	// are the last records of chains that no head and no other chain names so far.
	ends    map[int64]Link
	heads   map[Place]Hash
	awaited map[Place]reference
	loose   map[int64]Link
}

// reference is the link to a record of another chain, and the place (by) of the record that contains the link.
type reference struct {
	Link
	by Place
}

// newChains returns a check of an export that begins after the places in after. The heads of the chains
// before number since are signed with a former key; since is 0 if no head is.
func newChains(public ed25519.PublicKey, after []Link, since int64) *chains {
	c := &chains{
		public: public, after: after, former: newFormer(since, after), ends: map[int64]Link{}, heads: map[Place]Hash{},
		awaited: map[Place]reference{}, loose: map[int64]Link{},
	}
	if len(after) > 0 {
		c.at = after[0]
	}
	return c
}

// start returns the place after which the export begins in this chain. out is true if the export leaves the
// whole chain out.
func (c *chains) start(chain int64) (l Link, out bool) {
	for _, l := range c.after {
		if l.Chain == chain {
			return l, false
		}
	}
	return Link{Place: Place{Chain: chain}}, len(c.after) > 0 && chain < c.after[0].Chain
}

// record checks the next line of the export, which must be a record.
func (c *chains) record(line []byte) (f fields, err error) {
	next := c.at.next()
	body, hash, ok := cut(line)
	if !ok {
		return f, faultAt(next, "the record has no hash")
	}
	prev := c.at
	if !bytes.HasPrefix(body, prev.prefix(nil)) {
		_ = json.Unmarshal(line, &f) // if the line is not JSON, f has no place
		if prev, _ = c.start(f.Chain); f.Chain <= c.at.Chain || !bytes.HasPrefix(body, prev.prefix(nil)) {
			return f, c.misplaced(f.place())
		}
		next = prev.next()
	}
	if Hash(sha256.Sum256(body)) != hash {
		return f, faultAt(next, "the record was changed: its hash is another one")
	}
	f = fields{}
	if json.Unmarshal(line, &f) != nil {
		return f, faultAt(next, "the record is not JSON")
	}
	if _, err := time.Parse(timeFormat, f.Time); err != nil || f.Type == "" || f.Data == nil {
		return f, faultAt(next, "the record lacks its time, type or data")
	}
	if err := c.leave(next); err != nil {
		return f, err
	}
	c.at, c.signed, c.named = Link{Place: next, Hash: hash}, false, false
	if r, ok := c.awaited[next]; ok {
		delete(c.awaited, next)
		if c.named = true; r.Hash != hash {
			return f, faultAt(next, "the record is not the one that record %s names", r.by)
		}
	}
	return f, c.links(&f)
}

// misplaced returns the fault of a record whose place p does not follow the last record.
func (c *chains) misplaced(p Place) error {
	next := c.at.next()
	first, _ := c.start(p.Chain)
	switch {
	case p.Chain > c.at.Chain && first.next().Before(p):
		return faultAt(first.next(), "the record is missing: the first record of chain %d is %s", p.Chain, p)
	case p.Chain > c.at.Chain && p == first.next():
		return faultAt(p, "the record does not begin its chain: it names a record before it")
	case p.Chain == c.at.Chain && next.Before(p):
		return faultAt(next, "the record is missing: record %s follows record %s", p, c.at)
	case p.N > 0 && p.Before(next):
		return faultAt(next, "the file has record %s in the place of this record", p)
	}
	return faultAt(next, "the record does not follow record %s: one of the two was changed", c.at)
}

// leave stores the end of the current chain if the record at next begins another chain. If next continues a chain after
// a record that another chain names as the last, it returns a fault.
func (c *chains) leave(next Place) error {
	switch {
	case c.at.N == 0:
	case next.Chain != c.at.Chain:
		c.ends[c.at.Chain] = c.at
		if start, _ := c.start(c.at.Chain); start != c.at && !c.signed && !c.named {
			c.loose[c.at.Chain] = c.at
		}
	case c.named && !c.signed:
		return faultAt(next, "the record follows one that another chain names as the last")
	}
	return nil
}

// links checks the links of a record of type ChainHeads to the ends of other chains. The first record of each
// chain except chain 0 must be of this type.
func (c *chains) links(f *fields) error {
	if c.at.Chain == 0 {
		return nil
	}
	if f.Type != ChainHeads {
		if c.at.N == 1 {
			return faultAt(c.at.Place, "the first record of a chain does not name the chains before")
		}
		return nil
	}
	found, former, ok := named(f.Data)
	if !ok {
		return faultAt(c.at.Place, "the record names the ends of other chains in a way that is not valid")
	}
	if c.at.N == 1 {
		if err := c.former.begun(c.at.Place, former); err != nil {
			return err
		}
	}
	for _, l := range found {
		if err := c.link(reference{Link: l, by: c.at.Place}); err != nil {
			return err
		}
	}
	return nil
}

// link checks one link of a record to a record of another chain.
func (c *chains) link(r reference) error {
	start, out := c.start(r.Chain)
	end, read := c.ends[r.Chain]
	signed, isSigned := c.heads[r.Place]
	differs := faultAt(r.Place, "the record is not the one that record %s names", r.by)
	switch {
	case r.Chain == c.at.Chain:
		return faultAt(c.at.Place, "the record names its own chain")
	case out || r.Before(start.Place):
		return nil
	case r.Place == start.Place:
		if r.Hash != start.Hash {
			return differs
		}
	case r.Chain > c.at.Chain:
		if old, ok := c.awaited[r.Place]; ok && old.Hash != r.Hash {
			return differs
		}
		c.awaited[r.Place] = r
	case !read && start.N == 0:
		return faultAt(r.Place, "chain %d is missing: record %s names this record of it", r.Chain, r.by)
	case !read, end.Before(r.Place):
		return c.missing(r, end)
	case isSigned && signed == r.Hash:
		c.tied(r.Place)
	case end.Place != r.Place && !isSigned:
		return faultAt(end.Place, "the record was added to its chain: record %s names record %s as the last", r.by, r.Place)
	case end.Place != r.Place, end.Hash != r.Hash:
		return differs
	default:
		c.tied(r.Place)
	}
	return nil
}

// missing returns the fault of a chain that ends before a place that another chain names.
func (c *chains) missing(r reference, end Link) error {
	if end.N == 0 {
		end, _ = c.start(r.Chain)
	}
	return faultAt(end.next(), "the record is missing: record %s names record %s, but chain %d ends at %s",
		r.by, r.Place, r.Chain, end)
}

// tied handles a link from another chain to the record at p: if that is the last record of its chain, the
// record is no longer in c.loose.
func (c *chains) tied(p Place) {
	if c.loose[p.Chain].Place == p {
		delete(c.loose, p.Chain)
	}
}

// head checks a signed head, which must name the record that was checked last.
func (c *chains) head(h Head) error {
	switch {
	case h.Chain >= c.former.since && !h.Valid(c.public):
		return faultAt(h.Place, "the signature of the head is not valid")
	case c.at.Before(h.Place):
		return faultAt(c.lost(h.Place), "the record is missing: a signed head names record %s", h)
	case h.Link != c.at:
		return faultAt(h.Place, "the record is not the one that its signed head names")
	}
	c.signed = true
	c.heads[h.Place] = h.Hash
	c.former.heads.add(h)
	return nil
}

// lost returns the place of the first missing record, if a signed head names record p and the export has not
// reached p.
func (c *chains) lost(p Place) Place {
	if p.Chain == c.at.Chain {
		return c.at.next()
	}
	start, _ := c.start(p.Chain)
	return start.next()
}

// end checks at the end of the export that no record is missing: each record that another chain names was
// there, and the last record of each chain has a signed head or is named by another chain.
func (c *chains) end() error {
	if err := c.former.end(c.at); err != nil {
		return err
	}
	if p, ok := lowest(c.awaited); ok {
		r := c.awaited[p]
		end := c.ends[p.Chain]
		if p.Chain == c.at.Chain {
			end = c.at
		}
		if end.N == 0 {
			return faultAt(p, "chain %d is missing: record %s names this record of it", p.Chain, r.by)
		}
		return c.missing(r, end)
	}
	for _, l := range c.loose {
		return faultAt(l.Place, untied)
	}
	start, _ := c.start(c.at.Chain)
	if c.at.Chain != 0 && c.at != start && !c.signed && !c.named {
		return faultAt(c.at.Place, untied)
	}
	return nil
}

// untied is the reason of a Fault at the last record of a chain which nothing names: records after it could
// have been removed without notice.
const untied = "no other chain and no signed head names this record, the last of its chain"

// lowest returns the first place, in the order of an export, among the keys of m; false if m is empty.
func lowest(m map[Place]reference) (p Place, ok bool) {
	for q := range m {
		if !ok || q.Before(p) {
			p, ok = q, true
		}
	}
	return p, ok
}

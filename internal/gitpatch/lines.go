package gitpatch

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// Bounds of a comparison. Beyond these bounds the result is right, but may not be the shortest.
const (
	// mostLines is how many lines of both files, without the common start and end, are compared; more are replaced whole.
	mostLines = 1 << 19
	// exactLines is how many lines of both sides together lcs compares exactly, whatever they hold.
	exactLines = 100
	// mostDepth is how often a part may be split again at lines that both sides have exactly once; lcs compares what is
	// left.
	mostDepth = 16
)

// edit is a range of old lines and the range of new lines in its place. Either may be empty.
type edit struct{ a0, a1, b0, b1 int }

// text is one side of a comparison: data[from:to] holds the lines that are neither in the common start
// nor in the common end. The first of these lines has the number 0.
type text struct {
	data     []byte
	from, to int
	lines    int
	// starts are the offsets of the lines in data. It is nil if only the first line's start and the last one's end are
	// needed.
	starts []int32
}

// comparison is the difference of two texts.
type comparison struct {
	old, now text
	// before is the number of lines of the common start.
	before int
	edits  []edit
}

// compare returns the difference of two texts. It needs O(n log n) time, and memory for at most mostLines lines.
func compare(old, now []byte) *comparison {
	start := commonStart(old, now)
	end := commonEnd(old[start:], now[start:])
	d := &comparison{
		old:    text{data: old, from: start, to: len(old) - end},
		now:    text{data: now, from: start, to: len(now) - end},
		before: bytes.Count(old[:start], newline),
	}
	d.old.countLines()
	d.now.countLines()
	switch {
	case d.old.lines+d.now.lines == 0:
	case d.old.lines == 0 || d.now.lines == 0 || d.old.lines+d.now.lines > mostLines:
		d.edits = []edit{{0, d.old.lines, 0, d.now.lines}}
	default:
		d.search()
	}
	return d
}

var newline = []byte{'\n'}

// commonStart returns how many bytes long the lines are with which both texts begin.
func commonStart(a, b []byte) int {
	n := 0
	for n+8 <= min(len(a), len(b)) && binary.LittleEndian.Uint64(a[n:]) == binary.LittleEndian.Uint64(b[n:]) {
		n += 8
	}
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return bytes.LastIndexByte(a[:n], '\n') + 1
}

// commonEnd returns how many bytes long the lines are with which both texts end.
func commonEnd(a, b []byte) int {
	n := 0
	for n+8 <= min(len(a), len(b)) {
		x := binary.LittleEndian.Uint64(a[len(a)-n-8:]) ^ binary.LittleEndian.Uint64(b[len(b)-n-8:])
		if x != 0 {
			n += bits.LeadingZeros64(x) / 8
			break
		}
		n += 8
	}
	for n < min(len(a), len(b)) && a[len(a)-n-1] == b[len(b)-n-1] {
		n++
	}
	for _, t := range [][]byte{a, b} {
		if at := len(t) - n; at > 0 && t[at-1] != '\n' {
			next := bytes.IndexByte(t[at:], '\n')
			if next < 0 {
				return 0
			}
			n -= next + 1
		}
	}
	return n
}

// countLines counts the lines between from and to, the last of which may have no newline.
func (t *text) countLines() {
	part := t.data[t.from:t.to]
	t.lines = bytes.Count(part, newline)
	if len(part) > 0 && part[len(part)-1] != '\n' {
		t.lines++
	}
}

// at returns the offset in data of the start of a line. Line numbers below 0 are lines of the common start, numbers
// from lines on are lines of the common end.
func (t *text) at(line int) int {
	switch {
	case line <= 0:
		off := t.from
		for ; line < 0; line++ {
			off = bytes.LastIndexByte(t.data[:off-1], '\n') + 1
		}
		return off
	case line >= t.lines:
		off := t.to
		for ; line > t.lines; line-- {
			next := bytes.IndexByte(t.data[off:], '\n')
			if next < 0 {
				return len(t.data)
			}
			off += next + 1
		}
		return off
	}
	return int(t.starts[line])
}

// after returns how many lines the common end has; it counts no further than most.
func (t *text) after(most int) (n int) {
	for off := t.to; off < len(t.data) && n < most; n++ {
		next := bytes.IndexByte(t.data[off:], '\n')
		if next < 0 {
			return n + 1
		}
		off += next + 1
	}
	return n
}

// number finds the starts of the lines, and returns one number for each line. Equal lines have equal numbers.
func (t *text) number(known map[string]int32) []int32 {
	t.starts = make([]int32, 0, t.lines)
	numbers := make([]int32, 0, t.lines)
	for off := t.from; off < t.to; {
		end := t.to
		if n := bytes.IndexByte(t.data[off:t.to], '\n'); n >= 0 {
			end = off + n + 1
		}
		id, ok := known[string(t.data[off:end])]
		if !ok {
			id = int32(len(known))
			known[string(t.data[off:end])] = id
		}
		t.starts, numbers = append(t.starts, int32(off)), append(numbers, id)
		off = end
	}
	return numbers
}

// search finds the edits between the two texts, outside of their common start and end.
func (d *comparison) search() {
	known := map[string]int32{}
	s := &searcher{a: d.old.number(known), b: d.now.number(known)}
	s.seen = make([]seen, len(known))
	s.between(0, len(s.a), 0, len(s.b), 0)
	d.edits = s.edits
}

// searcher compares two lists of numbers. It splits them at the numbers that both have once, in the longest
// order that both share, and has lcs compare what lies between.
type searcher struct {
	a, b  []int32
	seen  []seen
	edits []edit
}

// seen says how often a line's number occurs in the compared part of each list, and at which index it was last seen.
type seen struct{ inA, inB, atA, atB int32 }

// add appends an edit. Edits that touch become one.
func (s *searcher) add(e edit) {
	if n := len(s.edits); n > 0 && s.edits[n-1].a1 == e.a0 && s.edits[n-1].b1 == e.b0 {
		s.edits[n-1].a1, s.edits[n-1].b1 = e.a1, e.b1
		return
	}
	s.edits = append(s.edits, e)
}

// between finds the edits between the parts a[a0:a1] and b[b0:b1].
func (s *searcher) between(a0, a1, b0, b1, depth int) {
	for a0 < a1 && b0 < b1 && s.a[a0] == s.b[b0] {
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && s.a[a1-1] == s.b[b1-1] {
		a1, b1 = a1-1, b1-1
	}
	if a0 == a1 && b0 == b1 {
		return
	}
	var anchors []anchor
	shared := a0 < a1 && b0 < b1
	if shared {
		anchors, shared = s.anchors(a0, a1, b0, b1)
	}
	switch {
	case !shared:
		s.add(edit{a0, a1, b0, b1})
	case len(anchors) == 0 || depth == mostDepth || a1-a0+b1-b0 <= exactLines:
		for _, d := range lcs.DiffRunes(s.a[a0:a1], s.b[b0:b1]) {
			s.add(edit{a0 + d.Start, a0 + d.End, b0 + d.ReplStart, b0 + d.ReplEnd})
		}
	default:
		for _, x := range anchors {
			s.between(a0, int(x.a), b0, int(x.b), depth+1)
			a0, b0 = int(x.a), int(x.b)
		}
		s.between(a0, a1, b0, b1, depth+1)
	}
}

// anchor is a line that both sides have once.
type anchor struct{ a, b int32 }

// anchors returns the longest sequence of lines that both parts have once and in the same order, and
// whether the parts share any line.
func (s *searcher) anchors(a0, a1, b0, b1 int) (out []anchor, shared bool) {
	for i, id := range s.a[a0:a1] {
		s.seen[id] = seen{inA: s.seen[id].inA + 1, atA: int32(a0 + i)}
	}
	for i, id := range s.b[b0:b1] {
		s.seen[id].inB++
		s.seen[id].atB = int32(b0 + i)
	}
	var all []anchor
	for i, id := range s.a[a0:a1] {
		x := s.seen[id]
		shared = shared || x.inB > 0
		if x.inA == 1 && x.inB == 1 {
			all = append(all, anchor{int32(a0 + i), x.atB})
		}
	}
	for _, id := range s.a[a0:a1] {
		s.seen[id] = seen{}
	}
	for _, id := range s.b[b0:b1] {
		s.seen[id] = seen{}
	}
	return ascending(all), shared
}

// ascending returns a longest subsequence of anchors that ascends in b. The anchors ascend in a.
func ascending(all []anchor) []anchor {
	// tails[n] is the anchor that ends the best sequence of n+1 anchors; prev leads back through it.
	tails, prev := make([]int32, 0, len(all)), make([]int32, len(all))
	for i, x := range all {
		n, _ := slices.BinarySearchFunc(tails, x.b, func(at, b int32) int { return int(all[at].b - b) })
		prev[i] = -1
		if n > 0 {
			prev[i] = tails[n-1]
		}
		if n == len(tails) {
			tails = append(tails, int32(i))
		} else {
			tails[n] = int32(i)
		}
	}
	out := make([]anchor, len(tails))
	for n, at := len(tails)-1, int32(0); n >= 0; n-- {
		if n == len(tails)-1 {
			at = tails[n]
		}
		out[n], at = all[at], prev[at]
	}
	return out
}

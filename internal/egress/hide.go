package egress

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
)

// hidden is the text that replaces a key.
const hidden = "***"

// leastKey is the shortest key that is hidden: shorter ones occur in answers by chance.
const leastKey = 4

// hider replaces a key in an answer that passes in pieces, in all spellings in which a provider may
// repeat the key. It holds back only the end of a piece that may be the beginning of the key. The
// zero value changes nothing.
type hider struct {
	spellings [][]byte
	held, buf []byte
}

func newHider(key string) *hider {
	h := &hider{}
	if len(key) < leastKey {
		return h
	}
	quoted, err := json.Marshal(key)
	if err != nil {
		quoted = []byte(`""`)
	}
	for _, s := range []string{key, string(quoted[1 : len(quoted)-1]), url.QueryEscape(key), url.PathEscape(key)} {
		if same := func(b []byte) bool { return string(b) == s }; len(s) >= leastKey && !slices.ContainsFunc(h.spellings, same) {
			h.spellings = append(h.spellings, []byte(s))
		}
	}
	return h
}

// pass accepts the next piece and returns the bytes that may be sent now, which are valid until the
// next call.
func (h *hider) pass(p []byte) []byte {
	if len(h.spellings) == 0 {
		return p
	}
	if len(h.held) > 0 {
		h.buf = append(append(h.buf[:0], h.held...), p...)
		p, h.held = h.buf, h.held[:0]
	}
	var out []byte
	for {
		i, n := h.find(p)
		if n == 0 {
			break
		}
		out = append(append(out, p[:i]...), hidden...)
		p = p[i+n:]
	}
	whole := len(p) - h.begun(p)
	h.held = append(h.held, p[whole:]...)
	if out == nil {
		return p[:whole]
	}
	return append(out, p[:whole]...)
}

// end returns the bytes that are still held back, at the end of the answer. If they are a beginning of the
// key of at least leastKey bytes, it returns the text hidden instead.
func (h *hider) end() []byte {
	if len(h.held) >= leastKey {
		return []byte(hidden)
	}
	return h.held
}

// all hides the key in a complete text.
func (h *hider) all(raw []byte) []byte {
	whole := &hider{spellings: h.spellings}
	out := whole.pass(raw)
	if rest := whole.end(); len(rest) > 0 {
		out = append(slices.Clip(out), rest...)
	}
	return out
}

// in reports whether s contains the key.
func (h *hider) in(s string) bool {
	_, n := h.find([]byte(s))
	return n > 0
}

// find returns the offset and the length of the first spelling of the key in p. The
// length is 0 if p does not hold the key.
func (h *hider) find(p []byte) (at, n int) {
	for _, s := range h.spellings {
		if i := bytes.Index(p, s); i >= 0 && (n == 0 || i < at || i == at && len(s) > n) {
			at, n = i, len(s)
		}
	}
	return at, n
}

// begun returns the length of the longest suffix of p that is a prefix of the key, in
// any of its spellings.
func (h *hider) begun(p []byte) int {
	longest := 0
	for _, s := range h.spellings {
		tail := p[max(0, len(p)-len(s)+1):]
		for len(tail) > longest {
			i := bytes.IndexByte(tail, s[0])
			if i < 0 {
				break
			}
			if tail = tail[i:]; bytes.HasPrefix(s, tail) {
				longest = max(longest, len(tail))
				break
			}
			tail = tail[1:]
		}
	}
	return longest
}

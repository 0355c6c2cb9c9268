package holdfast

import (
	"slices"
	"strings"
)

// parsed is a type that Parse makes: an id, a name, or a type with a fixed list of words. Its method checks s and
// returns it in canonical form; with an error it returns an empty string.
type parsed interface {
	~string
	parse(s string) (string, error)
}

// Parse returns s as a T if it is one: an id, a name, or a word as the comment of T describes it. The letters of a UUID
// are lowered. An empty SendMode is SendQueue, an empty ApprovalScope is ScopeOnce. Trust has three older words: full
// means Trusted, vault and sandboxed mean Untrusted. The error has KindInvalid and a hint.
func Parse[T parsed](s string) (T, error) {
	var t T
	s, err := t.parse(s)
	return T(s), err
}

// parseWord returns s if it is one of the words of W, else an error of KindInvalid. In the error, op is the operation,
// and what describes a value of W, such as "a session status".
func parseWord[W word](op, what, s string) (string, error) {
	list := Words[W]()
	if slices.Contains(list, W(s)) {
		return s, nil
	}
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	last := len(words) - 1
	return "", Errorf(KindInvalid, op, "the word %s is not %s", Quote(s), what).
		WithHint("use %s or %s", strings.Join(words[:last], ", "), words[last])
}

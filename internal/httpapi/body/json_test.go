package body

import (
	"encoding/json"
	"reflect"
	"testing"
)

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1,"a":2}`, `[1,2`, `{"a":"\ud83e\uddad"}`, `{"a":"\ud83e"}`, `"\\ud83e"`, `"\\\ud83e"`, "\"\xff\"", `1 2`, `[[[[[]]]]]`, `{"":{"":null}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeStrict(data)
		var want any
		if werr := json.Unmarshal(data, &want); err == nil && (werr != nil || !reflect.DeepEqual(withNil(got), want)) {
			t.Errorf("%q: %v instead of %v, %v", data, got, want, werr)
		}
	})
}

func TestLoneSurrogate(t *testing.T) {
	for s, want := range map[string]int{
		`plain`: -1, `\ud83e\uddad`: -1, `\uD83E\uDDAD`: -1, `\\ud83e`: -1, `\u0041\n\\`: -1, `\`: -1, `\u12`: -1,
		`\ud83e`: 0, `\udead`: 0, `x\ud83ex`: 1, `\ud83e\u0041`: 0, `\\\ud83e`: 2, `\ud83e\ud83e\uddad`: 0, `\uddad\ud83e`: 0,
	} {
		if got := loneSurrogate([]byte(s)); got != want {
			t.Errorf("%s: %d, not %d", s, got, want)
		}
	}
}

// withNil is a decoded value as the standard decoder has it.
func withNil(v any) any {
	switch v := v.(type) {
	case null:
		return nil
	case []any:
		for i := range v {
			v[i] = withNil(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = withNil(v[k])
		}
	}
	return v
}

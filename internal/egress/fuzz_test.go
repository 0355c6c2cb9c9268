package egress

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// FuzzBody: whatever a box sends, checking it ends, and what passes reads the same to
// any reader of JSON: no server tool, connector or address in it, at any spelling.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`,
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"x"}}]}],"tools":[{"type":"web_search_20250305"}]}`,
		`{"model":"m","messages":[],"stream":true,"stream_options":{"a":[1,{"b":"}"}]}}`,
		`{"\u006dodel":"m","tools":[{"type":"custom"},{"name":"\"}]"}],"messages":[]}`,
		`{"a":1,"a":2}`, `[]`, `"`, `{`, "{\"\\", " \t{}\n", `{"messages":[[]]}`, `{"model":"m","messages":[{"content":[{"type":"tool_result","content":[{"type":"text"}]}]}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, check := range []func([]byte, grants) (ask, error){checkMessages, checkChat} {
			a, err := check(bytes.Clone(raw), nil)
			if err != nil {
				if holdfast.KindOf(err) != holdfast.KindInvalid {
					t.Fatalf("%q: %v", raw, err)
				}
				continue
			}
			var doc map[string]any
			if err := json.Unmarshal(a.body, &doc); err != nil {
				t.Fatalf("%q passed as %q: %v", raw, a.body, err)
			}
			if doc["model"] != a.model || doc["mcp_servers"] != nil || doc["container"] != nil {
				t.Fatalf("%q passed", raw)
			}
			if tools, ok := doc["tools"].([]any); ok {
				for _, tool := range tools {
					kind := tool.(map[string]any)["type"]
					if kind != nil && kind != "custom" && kind != "function" {
						t.Fatalf("%q passed with %v", raw, kind)
					}
				}
			}
			if u, ok := doc["stream_options"].(map[string]any); ok && a.stream && len(doc) > 0 && u["include_usage"] == false {
				if _, chat := doc["stream_options"]; chat && !bytes.Equal(a.body, raw) {
					t.Fatalf("%q is not counted", raw)
				}
			}
		}
	})
}

// FuzzValid: what is taken for JSON is what the library takes.
func FuzzValid(f *testing.F) {
	for _, s := range []string{
		``, ` `, `0`, `-`, `-0`, `01`, `1.`, `1.5e+3`, `1E-`, `.5`, `"`, `"\"`, `"\u00Ff"`, `"\u00G0"`, `"\x"`, "\"\n\"", "\"\x80\"", `true`, `nul`, `truefalse`,
		`{}`, `{ }`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 , "b" : [ ] }`, `[`, `[1,]`, `[1 2]`, `[]]`, `{]`, `[[[]]]`, "\ufeff1",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, want := valid(raw), json.Valid(raw); got != want {
			t.Fatalf("%.200q: %v, %v in the library", raw, got, want)
		}
	})
}

// TestValidDepth: as deep as the library goes, and no deeper.
func TestValidDepth(t *testing.T) {
	for _, n := range []int{deepest - 1, deepest, deepest + 1} {
		for _, raw := range []string{
			strings.Repeat("[", n) + strings.Repeat("]", n), strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n), strings.Repeat("[", n),
		} {
			if got, want := valid([]byte(raw)), json.Valid([]byte(raw)); got != want {
				t.Errorf("%d deep, %.10s: %v, %v in the library", n, raw, got, want)
			}
		}
	}
}

// FuzzMembers: an object taken apart in place is what the library reads.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` { "a" : [ 1 , "]" ] , "b":{"c":"\"}"} , "d" : -1.5e3 , "e":null,"f":true } `, `{"\\":"\\"}`, `{"":""}`, `[1,[2,"3"],{"a":4}]`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := parseJSON(raw)
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if v.isObject() && json.Unmarshal(raw, &object) == nil {
			m, err := v.members("x")
			if err != nil {
				if !strings.Contains(err.Error(), "twice") {
					t.Fatalf("%q: %v", raw, err)
				}
				return
			}
			if got, want := slices.Sorted(maps.Keys(m)), slices.Sorted(maps.Keys(object)); !slices.Equal(got, want) {
				t.Fatalf("%q: %q instead of %q", raw, got, want)
			}
			for name, one := range m {
				if !bytes.Equal(trim(object[name]), one) {
					t.Fatalf("%q: %q is %q instead of %q", raw, name, one, object[name])
				}
			}
		}
		var list []json.RawMessage
		if v.isArray() && json.Unmarshal(raw, &list) == nil {
			got, err := v.elements("x")
			if err != nil || len(got) != len(list) {
				t.Fatalf("%q: %q %v", raw, got, err)
			}
			for i := range got {
				if !bytes.Equal(trim(list[i]), got[i]) {
					t.Fatalf("%q: %q instead of %q", raw, got[i], list[i])
				}
			}
		}
	})
}

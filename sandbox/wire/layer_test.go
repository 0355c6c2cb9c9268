package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestCheckLayers(t *testing.T) {
	for name, layers := range map[string][]Layer{
		"relative": {{Read: []string{"a"}}},
		"empty":    {{Write: []string{""}}},
		"nul":      {{Denied: []string{"/a\x00b"}}},
		"long":     {{Write: []string{"/" + strings.Repeat("a", 4096)}}},
		"deep":     make([]Layer, MaxLayers+1),
		"many":     {{Read: strings.Split(strings.Repeat("/,", MaxLayerPaths+1), ",")}},
	} {
		if err := CheckLayers(layers); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckLayers([]Layer{{Read: []string{"/"}}, {Write: []string{}, Denied: []string{"/x"}}, {}}); err != nil {
		t.Error(err)
	}
	if err := CheckLayers(nil); err != nil {
		t.Error(err)
	}
}

// TestLayersKey: layers with the same meaning share a thread, others do not.
func TestLayersKey(t *testing.T) {
	same := [][]Layer{
		{{Read: []string{"/a", "/b"}}},
		{{Read: []string{"/b", "/a", "/a/"}}},
		{{}, {Read: []string{"/b/", "/x/../a"}}, {Denied: []string{"/c"}}},
	}
	for _, l := range same {
		if got := LayersKey(l); got != LayersKey(same[0]) || got == "" {
			t.Errorf("%+v: %s", l, got)
		}
	}
	seen := map[string]bool{LayersKey(same[0]): true, "": true}
	for _, l := range [][]Layer{
		{{Write: []string{"/a", "/b"}}},
		{{Read: []string{"/a"}}, {Read: []string{"/b"}}},
		{{Read: []string{"/b"}}, {Read: []string{"/a"}}},
		{{Read: []string{"/a,/b"}}},
		{{Read: []string{}}},
		{{Read: []string{"/a", "/b"}, Write: []string{}}},
		{{Read: []string{"/a", "/b"}, Denied: []string{"/c"}}},
	} {
		key := LayersKey(l)
		if seen[key] {
			t.Errorf("%+v has the key of others: %s", l, key)
		}
		seen[key] = true
	}
	if LayersKey(nil) != "" || LayersKey([]Layer{{}, {Denied: []string{"/x"}}}) != "" {
		t.Error("what holds nothing back has a key")
	}
}

// TestLayersTravel: an empty list differs from a missing one.
func TestLayersTravel(t *testing.T) {
	b, err := json.Marshal(ExecBody{Exec: []byte("{}"), Layers: []Layer{{Read: []string{}}}})
	if err != nil {
		t.Fatal(err)
	}
	var got ExecBody
	if err := json.Unmarshal(b, &got); err != nil || len(got.Layers) != 1 || got.Layers[0].Read == nil || got.Layers[0].Write != nil {
		t.Errorf("%s became %+v (%v)", b, got, err)
	}
}

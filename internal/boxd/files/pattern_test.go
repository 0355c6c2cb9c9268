package files

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestBracesWriteABoundedAmount: few alternatives can still be much text, and groups of
// one option write all of it again for each group.
func TestBracesWriteABoundedAmount(t *testing.T) {
	many := strings.Repeat("{,}", 9)
	for name, p := range map[string]string{
		"long":          many + strings.Repeat("x", 4000),
		"single groups": many + strings.Repeat("{a}", 1300),
		"nested":        strings.Repeat("{", 2000) + "a" + strings.Repeat("}", 2000),
	} {
		b := braces{left: maxExpansion}
		if why := b.expand(p); !strings.Contains(why, "256 KiB") {
			t.Errorf("%s: %d patterns, %q", name, len(b.texts), why)
		}
		written := 0
		for _, text := range b.texts {
			written += len(text)
		}
		if written > maxExpansion {
			t.Errorf("%s: %d bytes", name, written)
		}
		_, err := compilePattern("glob", p)
		wantKind(t, err, holdfast.KindInvalid, "256 KiB")
	}
	if p, err := compilePattern("glob", strings.Repeat("{ab,cd}", 9)+strings.Repeat("x", 20)); err != nil || len(p.alts) != 512 {
		t.Errorf("512 short patterns: %v", err)
	}
}

// TestPlacesAreThereOnce: with many ** each directory is at many segments' places, but
// at none of them twice.
func TestPlacesAreThereOnce(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("**/*/", 300) + "x", strings.Repeat("**/", 300) + "x", "{**/a,*/**/a,**}/{**/*/**,a}/**/*/b", strings.Repeat("*/**/*/", 100) + "a",
	} {
		p, err := compilePattern("glob", text)
		must(t, err)
		at := p.start()
		for range 400 {
			at, _ = p.step(at, "a")
			seen := map[place]bool{}
			for _, have := range at {
				if seen[have] {
					t.Fatalf("%.40s: alternative %d, segment %d is there twice", text, have.alt, have.seg)
				}
				seen[have] = true
			}
		}
	}
}

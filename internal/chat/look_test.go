package chat

import (
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-run/holdfast/internal/plain"
)

// styles are what look itself writes.
var styles = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// FuzzRows: of whatever is said, rows fit the width and hold no control but our styles,
// and none without colour.
func FuzzRows(f *testing.F) {
	for _, s := range []string{"**bold** `code` *it*", "# head\n- item\n```go\ncode\n```\n> quote", "\x1b[2J\u009b31m", "日本語 " + strings.Repeat("long ", 50), strings.Repeat("x", 200), "a\tb", "```\nnever closed"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		one := plain.OneLine(s)
		lines := []plain.Line{{Kind: plain.Answer, Text: s}, {Kind: plain.Own, Text: s}}
		for k := plain.Note; k <= plain.Data; k++ {
			lines = append(lines, plain.Line{Kind: k, Text: one})
		}
		for _, color := range []bool{true, false} {
			for _, width := range []int{19, 79} {
				k := look{color: color, width: width, method: ansi.WcWidth}
				for _, r := range k.lines(lines) {
					bare := styles.ReplaceAllString(r, "")
					if !color && bare != r {
						t.Fatalf("%q is styled: %q", s, r)
					}
					if strings.IndexFunc(bare, unicode.IsControl) >= 0 || strings.IndexFunc(bare, plain.Reorders) >= 0 {
						t.Fatalf("%q leaves control: %q", s, r)
					}
					if w := k.method.StringWidth(r); w > width {
						t.Fatalf("%q: the row %q takes %d of %d columns", s, r, w, width)
					}
				}
			}
		}
	})
}

// TestMarkdownTakesNoTextAway: what is rendered holds every word, and addresses stay.
//
// FH-22, FH-31.
func TestMarkdownTakesNoTextAway(t *testing.T) {
	k := look{color: true, width: 60}
	got := strings.Join(k.markdown("# Head\nsome **bold** and `a*b*c` [good](http://evil)\n* item _it_ snake_case_name 2*3*4\n~~~\n**raw**\n~~~"), "\n")
	bare := styles.ReplaceAllString(got, "")
	if bare != "Head\nsome bold and a*b*c [good](http://evil)\n• item it snake_case_name 2*3*4\n~~~\n  **raw**\n~~~" {
		t.Errorf("%q", bare)
	}
}

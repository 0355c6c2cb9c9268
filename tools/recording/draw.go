package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
)

// span is a text with one style; line is a row of the terminal.
type span struct{ text, class string }

type line []span

// escape matches a control sequence. Those that end with m set the style; others are ignored.
var escape = regexp.MustCompile("\x1b\\[([0-9;?]*)([A-Za-z])")

// classes has the CSS class for each style that holdfast prints, by the parameter of its control sequence.
var classes = map[string]string{"0": "", "": "", "1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}

// lines returns the rows in which a terminal shows a text, wrapped at its width.
func lines(s string) []line {
	var out []line
	class := ""
	for row := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
		if s == "" {
			break
		}
		var now line
		width := 0
		add := func(text string) {
			for text != "" {
				r := []rune(text)
				n := min(len(r), columns-width)
				if n > 0 {
					now = append(now, span{string(r[:n]), class})
				}
				if text, width = string(r[n:]), width+n; text != "" {
					out, now, width = append(out, now), nil, 0
				}
			}
		}
		for row != "" {
			at := escape.FindStringSubmatchIndex(row)
			if at == nil {
				add(row)
				break
			}
			add(row[:at[0]])
			if row[at[4]:at[5]] == "m" {
				class = classes[row[at[2]:at[3]]]
			}
			row = row[at[1]:]
		}
		out = append(out, now)
	}
	return out
}

const (
	charWidth, rowHeight = 7.83, 18.0
	left, top            = 18.0, 52.0
	// between is the time between two printed rows, typing the time for typing a command, both in seconds.
	between, typing = 0.12, 0.9
)

// draw returns the animated picture (SVG). Each row appears at its time, and all rows stay until
// the animation starts over. Readers whose system asks for reduced motion see the last state.
func draw(screens []shown) []byte {
	type row struct {
		line
		at float64
	}
	var all []row
	now := 0.5
	for _, s := range screens {
		all = append(all, row{line{{"$ ", "g"}, {s.command, "b"}}, now})
		now += typing
		for _, l := range s.lines {
			all = append(all, row{l, now})
			now += between
		}
		now += s.pause
	}
	width, height := 2*left+columns*charWidth, top+float64(len(all))*rowHeight+8
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="A terminal: the server is killed in the middle of a tool; the next one goes on.">
<style>
text { font-size: 13px; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #d7dce5; white-space: pre }
.b { fill: #ffffff; font-weight: 600 } .d { fill: #8f98a8 } .r { fill: #ff8a80 } .g { fill: #8fd694 } .y { fill: #f2cc6b } .c { fill: #7fd1e0 }
@media (prefers-reduced-motion: no-preference) {
`, width, height, width, height)
	for i, r := range all {
		part := 100 * r.at / now
		fmt.Fprintf(&b, "@keyframes k%d { 0%%, %.2f%% { opacity: 0 } %.2f%%, 100%% { opacity: 1 } } #l%d { animation: k%d %.1fs infinite }\n", i, part, part+0.01, i, i, now)
	}
	fmt.Fprintf(&b, `}
</style>
<rect x="0.5" y="0.5" width="%.0f" height="%.0f" rx="9" fill="#1b212c" stroke="#4a5262"/>
<circle cx="22" cy="20" r="6" fill="#ff5f57"/><circle cx="42" cy="20" r="6" fill="#febc2e"/><circle cx="62" cy="20" r="6" fill="#28c840"/>
`, width-1, height-1)
	for i, r := range all {
		fmt.Fprintf(&b, `<text id="l%d" x="%.0f" y="%.0f" xml:space="preserve">`, i, left, top+float64(i)*rowHeight)
		for _, s := range r.line {
			b.WriteString(`<tspan`)
			if s.class != "" {
				fmt.Fprintf(&b, ` class="%s"`, s.class)
			}
			b.WriteString(">")
			_ = xml.EscapeText(&b, []byte(s.text)) // writing to a buffer never fails
			b.WriteString("</tspan>")
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

package builtin

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	globLimit = 100
	grepLimit = 250
	listLimit = 1000
)

var globSpec = tool.Spec{
	Name: "Glob",
	Description: "Finds files by a pattern such as src/**/*.go, newest first. " +
		"* and ? match within a name, ** any number of directories, {a,b} alternatives, [a-z] one character.",
	Schema: schema(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"The pattern"},` +
		`"path":{"type":"string","description":"The directory to search (default: the workspace)"}` +
		`},"required":["pattern"],"additionalProperties":false}`),
	Effect: tool.Read, Where: tool.InBox,
}

func runGlob(ctx context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	req := wire.GlobRequest{Pattern: in.filled("pattern"), Path: in.text("path", false), Limit: globLimit}
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	ans, err := call.Box.Glob(ctx, req)
	if err != nil {
		return tool.Result{}, err
	}
	if len(ans.Paths) == 0 && !ans.Truncated {
		return ok("No files found"), nil
	}
	var b strings.Builder
	for _, p := range ans.Paths {
		b.WriteString(show(p) + "\n")
	}
	if ans.Truncated {
		fmt.Fprintf(&b, "[the newest %d found; there are more: narrow the pattern]\n", len(ans.Paths))
	}
	return ok(b.String()), nil
}

// fileTypes has the glob for each value of Grep's field "type".
var fileTypes = map[string]string{
	"c": "*.{c,h}", "cpp": "*.{cpp,cc,cxx,hpp,hh,hxx,h}", "cs": "*.cs", "css": "*.{css,scss,sass,less}", "go": "*.go",
	"html": "*.{html,htm}", "java": "*.java", "js": "*.{js,jsx,mjs,cjs}", "json": "*.json", "kotlin": "*.{kt,kts}",
	"md": "*.{md,markdown,mdx}", "php": "*.php", "py": "*.{py,pyi}", "ruby": "*.rb", "rust": "*.rs",
	"sh": "*.{sh,bash,zsh}", "sql": "*.sql", "swift": "*.swift", "toml": "*.toml", "ts": "*.{ts,tsx,mts,cts}",
	"txt": "*.txt", "xml": "*.xml", "yaml": "*.{yaml,yml}",
}

// grepModes maps Claude Code's names of the output modes to those of the box.
var grepModes = map[string]string{"files_with_matches": "files", "content": "content", "count": "count"}

var grepSpec = tool.Spec{
	Name: "Grep",
	Description: "Searches file contents with a regular expression (RE2 syntax). Directories named .git, binary files and files " +
		"over 10 MB are passed over. Shows the files that match, or with output_mode content the lines.",
	Schema: schema(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"The regular expression"},` +
		`"path":{"type":"string","description":"The file or directory to search (default: the workspace)"},` +
		`"glob":{"type":"string","description":"Search only files that match, such as *.go or src/**/*.ts"},` +
		`"type":{"type":"string","description":"Search only files of a language, such as go, py, js"},` +
		`"output_mode":{"type":"string","enum":["files_with_matches","content","count"],"description":"What to show (default files_with_matches)"},` +
		`"-i":{"type":"boolean","description":"Ignore case"},` +
		`"-n":{"type":"boolean","description":"Show line numbers with content (default true)"},` +
		`"-A":{"type":"integer","minimum":0,"description":"Lines to show after each match"},` +
		`"-B":{"type":"integer","minimum":0,"description":"Lines to show before each match"},` +
		`"-C":{"type":"integer","minimum":0,"description":"Lines to show before and after each match"},` +
		`"multiline":{"type":"boolean","description":"Let the expression match across lines"},` +
		`"head_limit":{"type":"integer","minimum":1,"description":"The most files or matching lines to show (default 250)"}` +
		`},"required":["pattern"],"additionalProperties":false}`),
	Effect: tool.Read, Where: tool.InBox,
}

func runGrep(ctx context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	req := wire.GrepRequest{Pattern: in.filled("pattern"), Path: in.text("path", false), Glob: in.text("glob", false)}
	typ := in.text("type", false)
	mode := in.choice("output_mode", "files_with_matches", "content", "count")
	req.IgnoreCase = in.flag("-i", false)
	numbers := in.flag("-n", true)
	after, before := in.number("-A", -1, 0, 1000), in.number("-B", -1, 0, 1000)
	around := in.number("-C", 0, 0, 1000)
	req.Multiline = in.flag("multiline", false)
	req.Limit = int(in.number("head_limit", grepLimit, 0, 10_000))
	if typ != "" {
		known, ok := fileTypes[typ]
		switch {
		case !ok:
			in.fail("the input field %q must be one of %s, not %s", "type",
				strings.Join(slices.Sorted(maps.Keys(fileTypes)), ", "), holdfast.Quote(typ))
		case req.Glob != "":
			in.fail("the input fields %q and %q cannot be given together", "glob", "type")
		}
		req.Glob = known
	}
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	if req.Mode = grepModes[mode]; req.Mode == "content" {
		req.Before, req.After = int(or(before, around)), int(or(after, around))
	}
	ans, err := call.Box.Grep(ctx, req)
	if err != nil {
		return tool.Result{}, err
	}
	return ok(grepText(ans, req.Mode, numbers)), nil
}

// or returns n, or other if n was not given.
func or(n, other int64) int64 {
	if n < 0 {
		return other
	}
	return n
}

func grepText(ans wire.GrepAnswer, mode string, numbers bool) string {
	if len(ans.Matches) == 0 && !ans.Truncated {
		return "No matches found"
	}
	var b strings.Builder
	for i, m := range ans.Matches {
		name := show(m.Path)
		switch mode {
		case "count":
			fmt.Fprintf(&b, "%s:%d\n", name, m.Count)
			continue
		case "files":
			b.WriteString(name + "\n")
			continue
		}
		if i > 0 {
			// With context lines, groups of lines that are not adjacent are separated.
			p := ans.Matches[i-1]
			if (m.Context || p.Context) && (p.Path != m.Path || m.Line != p.Line+1) {
				b.WriteString("--\n")
			}
		}
		sep := ":"
		if m.Context {
			sep = "-"
		}
		b.WriteString(name + sep)
		if numbers {
			fmt.Fprintf(&b, "%d%s", m.Line, sep)
		}
		b.WriteString(m.Text + "\n")
	}
	if ans.Truncated {
		b.WriteString("[there is more: narrow the search or raise head_limit]\n")
	}
	return b.String()
}

var lsSpec = tool.Spec{
	Name:        "LS",
	Description: "Lists a directory: directories end with a slash, files show their size.",
	Schema: schema(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"The directory (default: the workspace)"},` +
		`"ignore":{"type":"array","items":{"type":"string"},"description":"Patterns of names to leave out, such as *.tmp"}` +
		`},"additionalProperties":false}`),
	Effect: tool.Read, Where: tool.InBox,
}

func runLS(ctx context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	req := wire.ListRequest{Path: in.text("path", false), Limit: listLimit}
	ignore := in.texts("ignore")
	for _, p := range ignore {
		if _, err := path.Match(p, ""); err != nil {
			in.fail("the input field %q has %s, which is not a valid pattern", "ignore", holdfast.Quote(p))
		}
	}
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	ans, err := call.Box.List(ctx, req)
	if err != nil {
		return tool.Result{}, err
	}
	var b strings.Builder
	left := 0
	for _, e := range ans.Entries {
		if slices.ContainsFunc(ignore, func(p string) bool { m, _ := path.Match(p, e.Path); return m }) {
			left++
			continue
		}
		switch e.Type {
		case wire.TypeDir:
			fmt.Fprintf(&b, "%s/\n", show(e.Path))
		case wire.TypeSymlink:
			fmt.Fprintf(&b, "%s -> %s\n", show(e.Path), show(e.Target))
		case wire.TypeFile:
			fmt.Fprintf(&b, "%s (%s)\n", show(e.Path), count(e.Size, "byte"))
		default:
			fmt.Fprintf(&b, "%s (special file)\n", show(e.Path))
		}
	}
	switch {
	case ans.Truncated:
		fmt.Fprintf(&b, "[only the first %d entries are listed; use Glob for the rest]\n", len(ans.Entries))
	case len(ans.Entries) == 0:
		b.WriteString("(the directory is empty)\n")
	case left == len(ans.Entries):
		b.WriteString("(every entry is ignored)\n")
	}
	return ok(b.String()), nil
}

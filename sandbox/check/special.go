package check

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/sandbox/check/usage"
)

// link records that a command makes the path at lead to the path to.
type link struct {
	at, to word
	// beside is true if to is relative to the directory of the link, and not to the working directory.
	// copied is true if at is a copy: then only symbolic links among the copied files lead elsewhere.
	beside, copied bool
}

// special handles cases that the tables cannot express, such as git's config subcommand and
// programs that write to a place that none of their words names.
func (r *reading) special() {
	here := file{word: word{text: ".", pos: r.first.pos}, op: Write, sure: true}
	switch r.name {
	case "git":
		r.git()
	case "dd":
		for _, w := range r.words {
			if name, ok := strings.CutPrefix(w.text, "of="); ok {
				w.text = name
				r.add(file{word: w, op: Write, sure: true})
			}
		}
	case "unzip":
		if !r.line.Has("-d", "-l", "-p", "-t", "-v", "-Z", "-c") {
			r.add(here)
		}
	case "wget", "wget2":
		if !r.line.Has("-O", "--output-document", "-P", "--directory-prefix", "--spider") {
			r.add(here)
		}
	case "curl":
		if r.line.Has("-O", "--remote-name", "--remote-name-all") && !r.line.Has("--output-dir") {
			r.add(here)
		}
	case "go":
		r.linker()
	case "tar", "gtar", "bsdtar":
		r.remote()
		if r.line.Unpack && !r.line.Has("-O", "--to-stdout") {
			r.unpacked(here)
		}
	case "jq":
		for _, u := range r.line.Uses {
			if (u.Option == "--slurpfile" || u.Option == "--rawfile") && u.At+2 < len(r.words) {
				r.add(file{word: r.words[u.At+2], op: Read, sure: true})
			}
		}
	case "awk", "gawk":
		r.inPlace()
	case "patch":
		if len(r.line.Operands) == 0 && !r.line.Has("--dry-run") {
			r.add(here)
		}
	case "split", "gsplit", "csplit":
		if len(r.line.Operands) < 2 {
			r.add(here)
		}
	}
	for _, u := range r.line.Uses {
		// An operand @FILE names a file from which a compiler reads further arguments.
		if w := r.words[u.At]; u.Kind == usage.Read && u.Option == "" && len(w.text) > 1 && w.text[0] == '@' {
			w.text = w.text[1:]
			r.add(file{word: w, op: Read, sure: true})
		}
	}
}

// inPlace handles gawk's extension "inplace", with which it writes to its operands.
func (r *reading) inPlace() {
	edits := false
	for _, u := range r.line.Uses {
		if (u.Option == "-i" || u.Option == "--include") && strings.TrimSuffix(path.Base(r.value(u).text), ".awk") == "inplace" {
			edits = true
		}
	}
	for _, u := range r.line.Uses {
		if edits && u.Kind == usage.Any && u.Option == "" {
			r.add(file{word: r.words[u.Word], op: Write, sure: true})
		}
	}
}

// linker reports the go option -ldflags as opaque if it makes go run another linker program.
func (r *reading) linker() {
	for _, u := range r.line.Uses {
		if u.Option == "-ldflags" && strings.Contains(r.value(u).text, "extld") {
			r.a.opaque(CodeLauncher, r.words[u.At].pos, r.words[u.At].text, "with this option go runs another program")
		}
	}
}

// remote refuses tar archives on another machine: tar runs a program to fetch them.
func (r *reading) remote() {
	for _, u := range r.line.Uses {
		if u.Option != "-f" && u.Option != "--file" || r.line.Has("--force-local") {
			continue
		}
		if host, _, ok := strings.Cut(r.value(u).text, ":"); ok && !strings.Contains(host, "/") {
			r.a.opaque(CodeLauncher, r.words[u.At].pos, r.value(u).text, "to read this archive tar runs another program")
		}
	}
}

// unpacked records that an archive is extracted, so files are written: below the directory that
// an option such as -C gives, otherwise below the working directory.
func (r *reading) unpacked(here file) {
	to := []file{here}
	for _, u := range r.line.Uses {
		if u.Kind == usage.Dir && u.Word >= 0 {
			to = append(to[:0:0], file{word: r.value(u), op: Write, sure: true})
		}
	}
	for _, f := range to {
		r.add(f)
	}
}

// transport matches a git URL, NAME::ADDRESS, for which git runs a helper program.
var transport = regexp.MustCompile(`^[A-Za-z0-9+.-]+::`)

// settingsOfGit matches the git settings that neither name a program nor lead to one.
var settingsOfGit = regexp.MustCompile(`^(?i)(user\.(name|email|signingkey)|init\.defaultbranch|pull\.(rebase|ff)|push\.(default|autosetupremote|followtags)|` +
	`core\.(autocrlf|eol|filemode|quotepath|ignorecase|longpaths|symlinks|abbrev|safecrlf|bare|sharedrepository|commentchar|precomposeunicode)|color\..*|` +
	`advice\..*|commit\.(gpgsign|verbose|status)|tag\.(sort|gpgsign)|merge\.(conflictstyle|ff|renames|stat)|rebase\.(autostash|autosquash|updaterefs|stat)|` +
	`fetch\.(prune|prunetags|parallel)|rerere\.(enabled|autoupdate)|branch\..*\.(remote|merge|rebase|pushremote|description)|diff\.(algorithm|renames|colormoved|mnemonicprefix|noprefix|context)|log\.(date|decorate|abbrevcommit)|` +
	`status\..*|remote\.[^.]*\.(fetch|push|prune|tagopt)|http\.postbuffer|gc\.(auto|autodetach)|column\.ui)$`)

// git checks the cases that the table of git cannot express.
func (r *reading) git() {
	for _, w := range r.words {
		if transport.MatchString(w.text) {
			r.a.opaque(CodeLauncher, w.pos, w.text, "to reach this address git runs another program")
			return
		}
	}
	for _, u := range r.line.Uses {
		if u.Kind == usage.Write && u.Option != "" {
			r.a.unsure(r.words[u.At].pos, r.words[u.At].text, "git writes to this file, which may be its own settings")
		}
	}
	if r.line.Sub >= 0 && r.words[r.line.Sub].text == "config" {
		r.gitConfig()
	}
}

// gitConfig refuses the git config commands that change a setting which may name a program.
func (r *reading) gitConfig() {
	var operands []word
	for _, i := range r.line.Operands {
		operands = append(operands, r.words[i])
	}
	if len(operands) > 0 && operands[0].kind == literal {
		switch operands[0].text {
		case "get", "list", "get-all", "get-regexp", "unset":
			return
		case "set":
			operands = operands[1:]
		}
	}
	if r.line.Has("--rename-section") || len(operands) > 0 && (operands[0].text == "rename-section" || operands[0].text == "edit") {
		r.a.opaque(CodeLauncher, r.first.pos, "config", "git config may rename a harmless setting to one that runs a program")
		return
	}
	if r.line.Has("--get", "--get-all", "--get-regexp", "--get-urlmatch", "--get-color", "--get-colorbool", "--list", "-l", "--unset", "--unset-all") || len(operands) < 2 {
		return
	}
	if key := operands[0]; key.kind != literal || !settingsOfGit.MatchString(key.text) {
		r.a.opaque(CodeLauncher, key.pos, key.text, "with this setting git may run another program")
	}
}

// links records the paths that ln, cp, mv and similar commands make lead to other paths.
func (r *reading) links() {
	if !slices.Contains([]string{"ln", "link", "cp", "gcp", "mv", "rsync", "install"}, r.name) {
		return
	}
	symbolic := r.line.Has("-s", "--symbolic", "--symbolic-link") && !r.line.Has("-r", "--relative")
	copied := r.name != "ln" && r.name != "link" && !r.line.Has("-s", "-l", "--symbolic-link", "--link")
	var operands []word
	dir := word{text: "."}
	for _, u := range r.line.Uses {
		if u.Kind == usage.Target && u.Word >= 0 {
			dir = r.value(u)
		}
	}
	for _, i := range r.line.Operands {
		operands = append(operands, r.words[i])
	}
	// With one source the last operand may be the link itself, else it is a directory.
	itself := false
	if dir.text == "." && len(operands) > 1 {
		dir = operands[len(operands)-1]
		operands = operands[:len(operands)-1]
		base := path.Base(dir.text)
		itself = len(operands) == 1 && base != "." && base != ".." && !strings.HasSuffix(dir.text, "/")
	}
	cmd := &r.a.out.Commands[r.cmd]
	for _, to := range operands {
		inside := dir
		inside.text = join(dir.text, path.Base(to.text))
		l := link{at: inside, to: to, beside: symbolic, copied: copied}
		if cmd.links = append(cmd.links, l); itself {
			l.at = dir
			cmd.links = append(cmd.links, l)
		}
	}
}

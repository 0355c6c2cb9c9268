package usage

import (
	"strings"
	"testing"
)

// FuzzOptions: for any words behind any program, every use points into the words, and
// the unknown option is one of them.
func FuzzOptions(f *testing.F) {
	for _, line := range []string{
		"tar\ncIf\nsh\na.tar", "git\n-C\n.\n-c\na=b\nlog\n--exec=x", "sed\n-ne1erm\nf", "env\n-S\nx", "find\n.\n-exec\nrm\n{}\n;", "xargs\n-I%\nsh\n-c\n%",
		"perl\n-l0ne\n1", "zip\n-TTrm\nx", "gcc\n-Wl,x\n@f", "vim\n+!rm\n-p2c", "go\ntest\n--exec=x\n-test.v", "npm\nexec\n-c\nx", "uniq\na\nb", "cp\n-rt\na\nb", "git\n--no-no-x",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, "\n")
		p := Of(words[0])
		if p == nil {
			return
		}
		args := make([]Word, len(words)-1)
		for i, w := range words[1:] {
			args[i] = Word{Text: w, Computed: strings.HasPrefix(w, "$"), Vague: strings.HasPrefix(w, "$")}
		}
		l := p.Read(args)
		for _, u := range l.Uses {
			if u.At < 0 || u.At >= len(args) || u.Word >= len(args) || u.Word >= 0 && u.From > len(args[u.Word].Text) {
				t.Errorf("%q: %+v", line, u)
			}
		}
		if l.Unknown >= len(args) || l.Sub >= len(args) || l.Command >= len(args) {
			t.Errorf("%q: %+v", line, l)
		}
		for _, e := range l.Execs {
			if e[0] > e[1] || e[1] > len(args) {
				t.Errorf("%q: %v", line, e)
			}
		}
	})
}

// FuzzScripts: programs of sed and awk are always read to their end, and the word
// system outside of quotes, expressions and comments is found.
func FuzzScripts(f *testing.F) {
	for _, s := range []string{"1erm", "s/a/b/w f", `/[/]/d`, "a\\\nx", "{p;}", `BEGIN{system("rm")}`, `{x = y++ / 2 / 3}`, `{print > "f"; getline l < "g"}`, `/[^/]/`, "#", `"`, "s", `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ReadSed(s)
		if got := ReadAwk("BEGIN {system(x)} " + s); got.Runs == "" {
			t.Errorf("%q: %+v", s, got)
		}
		if got := ReadSed("1e\n" + s); got.Runs == "" {
			t.Errorf("%q: %+v", s, got)
		}
	})
}

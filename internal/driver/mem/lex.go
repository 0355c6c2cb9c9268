package mem

import "strings"

type token struct {
	op   string // an operator, "\n", or "" for a word
	word word
	end  bool
}

type syntaxError string

func (e syntaxError) Error() string { return "syntax error: " + string(e) }

// lexer splits a script into tokens.
type lexer struct {
	src string
	pos int
	// depth is how deeply lists are nested here.
	depth int
}

var operators = []string{"&&", "||", ">>", ">&", ";;", ";", "&", "|", ">", "<", "(", ")", "\n"}

func (l *lexer) next() (token, error) {
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
			continue
		case c == '\\' && strings.HasPrefix(l.src[l.pos:], "\\\n"):
			l.pos += 2
			continue
		case c == '#':
			for l.pos < len(l.src) && l.src[l.pos] != '\n' {
				l.pos++
			}
			continue
		}
		break
	}
	if l.pos >= len(l.src) {
		return token{end: true}, nil
	}
	for _, op := range operators {
		if strings.HasPrefix(l.src[l.pos:], op) {
			l.pos += len(op)
			return token{op: op}, nil
		}
	}
	// A digit directly before a redirection is its descriptor.
	if c := l.src[l.pos]; (c == '1' || c == '2') && l.pos+1 < len(l.src) && l.src[l.pos+1] == '>' {
		l.pos++
		t, err := l.next()
		t.op = string(c) + t.op
		return t, err
	}
	w, err := l.word(" \t\r\n;&|<>()")
	return token{word: w}, err
}

// word reads parts up to one of the stop characters.
func (l *lexer) word(stop string) (word, error) {
	var w word
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			w = append(w, part{kind: partText, text: text.String()})
			text.Reset()
		}
	}
	for l.pos < len(l.src) && !strings.ContainsRune(stop, rune(l.src[l.pos])) {
		switch c := l.src[l.pos]; c {
		case '\\':
			if l.pos+1 >= len(l.src) {
				return nil, syntaxError("backslash at the end")
			}
			flush()
			w = append(w, part{kind: partText, text: l.src[l.pos+1 : l.pos+2], quoted: true})
			l.pos += 2
		case '\'':
			end := strings.IndexByte(l.src[l.pos+1:], '\'')
			if end < 0 {
				return nil, syntaxError("unterminated '")
			}
			flush()
			w = append(w, part{kind: partText, text: l.src[l.pos+1 : l.pos+1+end], quoted: true})
			l.pos += end + 2
		case '"':
			flush()
			l.pos++
			ps, err := l.double()
			if err != nil {
				return nil, err
			}
			w = append(w, ps...)
		case '$':
			flush()
			p, err := l.dollar()
			if err != nil {
				return nil, err
			}
			w = append(w, p)
		default:
			text.WriteByte(c)
			l.pos++
		}
	}
	flush()
	return w, nil
}

// double reads the inside of double quotes.
func (l *lexer) double() (word, error) {
	// An empty quoted part makes "" a field.
	w := word{{kind: partText, quoted: true}}
	var text strings.Builder
	flush := func() {
		w = append(w, part{kind: partText, text: text.String(), quoted: true})
		text.Reset()
	}
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == '"':
			l.pos++
			flush()
			return w, nil
		case c == '\\' && l.pos+1 < len(l.src) && strings.IndexByte("\"\\$`", l.src[l.pos+1]) >= 0:
			text.WriteByte(l.src[l.pos+1])
			l.pos += 2
		case c == '$':
			flush()
			p, err := l.dollar()
			if err != nil {
				return nil, err
			}
			p.quoted = true
			w = append(w, p)
		default:
			text.WriteByte(c)
			l.pos++
		}
	}
	return nil, syntaxError(`unterminated "`)
}

func nameByte(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || !first && c >= '0' && c <= '9'
}

// dollar reads $name, ${name}, $?, $$, $1, $(list) and $((sum)).
func (l *lexer) dollar() (part, error) {
	l.pos++
	rest := l.src[l.pos:]
	switch {
	case strings.HasPrefix(rest, "(("):
		end := strings.Index(rest, "))")
		if end < 0 {
			return part{}, syntaxError("unterminated $((")
		}
		l.pos += end + 2
		return part{kind: partArith, text: rest[2:end]}, nil
	case strings.HasPrefix(rest, "("):
		l.pos++
		p := &parser{lex: l}
		p.advance()
		body, err := p.list(")")
		if err != nil {
			return part{}, err
		}
		if p.err != nil || p.tok.op != ")" {
			return part{}, syntaxError("unterminated $(")
		}
		return part{kind: partSub, sub: body}, nil
	case strings.HasPrefix(rest, "{"):
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return part{}, syntaxError("unterminated ${")
		}
		name := rest[1:end]
		for i := range len(name) {
			if !nameByte(name[i], i == 0) {
				return part{}, syntaxError("bad substitution ${" + name + "}")
			}
		}
		l.pos += end + 1
		return part{kind: partVar, text: name}, nil
	case rest != "" && strings.IndexByte("?$#@!0123456789", rest[0]) >= 0:
		l.pos++
		return part{kind: partVar, text: rest[:1]}, nil
	}
	n := 0
	for n < len(rest) && nameByte(rest[n], n == 0) {
		n++
	}
	if n == 0 {
		return part{kind: partText, text: "$", quoted: true}, nil
	}
	l.pos += n
	return part{kind: partVar, text: rest[:n]}, nil
}

"""Generated programs: written at random or enumerated, screened fast, judged by the ordinary rules, shrunk."""

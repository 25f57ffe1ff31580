"""A stand-alone program that shows a finding to somebody who has torch alone, and a report for the vendor."""
